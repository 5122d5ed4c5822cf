package api

import (
	"context"

	"weir/bucket"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/letters"
	"weir/deadletter"
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
	chosen, words, err := said.choose(r)
	if err != nil {
		return nil, err
	}
	var rate *bucket.Rate
	if said.Rate != "" {
		every, err := config.ParseRate(said.Rate)
		if err != nil {
			return nil, badRequest("rate: %v", err)
		}
		rate = &every
	}
	_, scope, err := l.scope(ctx, chosen)
	if err != nil {
		return nil, err
	}
	found, err := scope.Contents(ctx)
	switch {
	case err != nil:
		return nil, l.Connection.Explain(err)
	case found.Letters == 0:
		return nil, cli.NotFound(errNoLetters)
	}
	told := letters.PurgeOf(found, rate)
	if said.DryRun {
		told.DryRun = true
		return told, nil
	}
	right, err := letters.TakeRight(ctx, l.Connection, r.who.String())
	if err != nil {
		return nil, err
	}
	defer right.Give()
	told.Purged, err = scope.Purge(ctx, deadletter.PurgeOptions{Rate: rate, Valid: right.Valid, Told: func(int) {}})
	if told.Purged > 0 {
		about := letters.Operation{Who: r.who.String(), API: said.API, Key: said.Key, Selection: words}
		if err := about.TellPurged(context.WithoutCancel(ctx), l.Connection, told.Purged); err != nil {
			l.Log.Warn("an event could not be stored", "err", err)
		}
	}
	return told, l.Connection.Explain(err)
}
