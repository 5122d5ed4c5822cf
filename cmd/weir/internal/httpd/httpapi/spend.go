package httpapi

import (
	"context"

	"weir/cmd/weir/internal/ops/spend"
	"weir/cmd/weir/internal/serve/admin"
)

// spending answers what calls cost, and how limits were used, by the sums that replicas keep of the ledger.
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
		account.Budgets = told.today.BudgetsOf(api) // of the moment in which weir counted them
	}
	return account, account.AddLosses(ctx, s.Connection)
}

// use answers how the limits of an api were used in the last day.
func (s *spending) use(ctx context.Context, r *request) (any, error) {
	api, err := s.api(r)
	if err != nil {
		return nil, err
	}
	return admin.UseOf(ctx, s.Connection, api.Name)
}
