package httpapi

import (
	"context"

	"weir/cmd/weir/internal/ops/spend"
	"weir/cmd/weir/internal/serve/admin"
)

// spending answers what calls cost and how much of limits they used. It uses the sums that replicas keep of the ledger.
type spending struct {
	*Options

	overview *overview
}

func (s *spending) tell(ctx context.Context, r *request) (any, error) {
	api := r.word("api")
	if api != "" {
		if _, err := s.named(api); err != nil {
			return nil, err
		}
	}
	account, err := admin.Spent(ctx, s.Connection, admin.SpentQuestion{By: spend.By(r.word("by")), API: api, Since: r.time("since"), Limit: r.number(listLimit)})
	if err != nil {
		return nil, err
	}
	if told, untold := s.overview.snapshot(ctx); untold == nil && told.today != nil {
		account.Budgets = told.today.BudgetsOf(api) // as of the moment when weir counted them
	}
	return account, account.AddLosses(ctx, s.Connection)
}

// use answers how much of an api's limits the calls of the last day used.
func (s *spending) use(ctx context.Context, r *request) (any, error) {
	api, err := s.api(r)
	if err != nil {
		return nil, err
	}
	return admin.UseOf(ctx, s.Connection, api.Name)
}
