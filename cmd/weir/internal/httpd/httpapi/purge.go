package httpapi

import (
	"context"

	"weir/bucket"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/ops/deadview"
)

// purgeWord selects letters to be deleted for good.
type purgeWord struct {
	selection

	Rate   string `json:"rate,omitempty"`    // letters per duration, as in 500/s; absent: as fast as the server can
	DryRun bool   `json:"dry_run,omitempty"` // only say what would be deleted
}

func (l *deadLetters) purge(ctx context.Context, r *request) (any, error) {
	said, err := read[purgeWord](r)
	if err != nil {
		return nil, err
	}
	chosen, err := said.choose(r)
	if err != nil {
		return nil, err
	}
	var rate *bucket.Rate
	if said.Rate != "" {
		every, err := grammar.ParseRate(said.Rate)
		if err != nil {
			return nil, badRequest("rate: %v", err)
		}
		rate = &every
	}
	store, err := deadview.Open(ctx, l.Connection)
	if err != nil {
		return nil, err
	}
	p, err := store.PlanPurge(ctx, chosen, rate)
	if err != nil || said.DryRun {
		return p, err
	}
	return p, p.Run(ctx, r.who.String(), func(int) {}, func(err error) {
		l.Log.Warn("could not store the event about a purge; the purge itself is not affected", "err", err)
	})
}
