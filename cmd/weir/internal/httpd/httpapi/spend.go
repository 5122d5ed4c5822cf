package httpapi

import (
	"context"

	"weir/cmd/weir/internal/ops/spend"
)

// spending answers what calls cost, by the ledger.
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
	told, untold := s.overview.snapshot(ctx)
	var upTo uint64
	if untold == nil { // otherwise the ledger tells what it can
		upTo = told.upTo // the moment in which the budgets counted
	}
	account, err := spend.Of(ctx, s.Connection, spend.Options{By: spend.By(r.word("by")), API: api, Since: r.time("since"), Now: r.asked, Config: s.Config(), UpTo: upTo})
	if err != nil {
		return nil, err
	}
	if untold == nil {
		for _, api := range told.APIs {
			account.Heard(api.API, api.Limits)
		}
	}
	account.Limit(r.number(listLimit))
	return account, nil
}
