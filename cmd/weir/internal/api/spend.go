package api

import (
	"context"
	"errors"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/spend"
	"weir/dispatcher/ledger"
)

// spending answers what calls cost, by the ledger.
type spending struct {
	*Options

	overview *overview
}

func (s *spending) tell(ctx context.Context, r *request) (any, error) {
	by, now := spend.By(r.word("by")), r.asked
	if by == "" {
		by = spend.ByAPI
	}
	api := r.word("api")
	if api != "" {
		if _, err := s.named(api); err != nil {
			return nil, err
		}
	}
	from := r.time("since")
	if from.IsZero() {
		from = spend.UsualSince(by, now)
	}
	told, untold := s.overview.snapshot(ctx)
	var upTo uint64
	if untold == nil { // otherwise the ledger tells what it can
		upTo = told.upTo // the moment in which the budgets counted
	}
	account, err := spend.Of(ctx, s.Connection, spend.Options{By: by, API: api, Since: from, Now: now, Config: s.Config(), UpTo: upTo})
	switch {
	case errors.Is(err, ledger.ErrNoLedger):
		return nil, cli.NotFound(err)
	case err != nil:
		return nil, s.Connection.Explain(err)
	}
	if untold == nil {
		for _, api := range told.APIs {
			account.Heard(api.API, api.Limits)
		}
	}
	account.Groups = account.Groups[:min(len(account.Groups), r.number(listLimit))]
	return account, nil
}
