package deadview

import (
	"context"
	"fmt"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config/grammar"
	"weir/deadletter"
)

// Purge is what a purge would do or did.
type Purge struct {
	DryRun      bool       `json:"dry_run"`
	Letters     int        `json:"letters"`
	Bytes       int64      `json:"bytes"`
	Oldest      *time.Time `json:"oldest,omitempty"`
	Newest      *time.Time `json:"newest,omitempty"`
	Billed      int        `json:"billed"`
	MaybeBilled int        `json:"maybe_billed"`
	Cost        string     `json:"cost"` // of deleting: no api is called
	DurationMS  int64      `json:"duration_ms"`
	Purged      int        `json:"purged"`

	store *Store
	of    Selection
	scope *deadletter.Scope
	rate  *bucket.Rate
}

// PlanPurge counts the letters that a purge would delete. rate is the pace of the purge; nil: as fast as the server can
// delete.
func (s *Store) PlanPurge(ctx context.Context, of Selection, rate *bucket.Rate) (*Purge, error) {
	scope, err := s.Bound(ctx, of.Selection)
	if err != nil {
		return nil, err
	}
	found, err := scope.Contents(ctx)
	switch {
	case err != nil:
		return nil, s.c.Explain(err)
	case found.Letters == 0:
		return nil, None(of.Filter)
	}
	p := &Purge{
		DryRun: true, Letters: found.Letters, Bytes: found.Bytes, Oldest: new(found.Oldest.UTC()), Newest: new(found.Newest.UTC()),
		Billed: found.Billed, MaybeBilled: found.Maybe, Cost: grammar.Money(0).String(), store: s, of: of, scope: scope, rate: rate,
	}
	if rate != nil {
		p.DurationMS = int64(float64(found.Letters-1) * rate.Per.Seconds() * 1e3 / float64(rate.Count))
	}
	return p, nil
}

// Run deletes the counted letters and publishes the event. It calls shown with the number of letters deleted so far. If
// the event could not be stored, it calls unsaid. If Run fails, p says what was done until then.
func (p *Purge) Run(ctx context.Context, by string, shown func(int), unsaid func(error)) error {
	right, err := takeRight(ctx, p.store.c, by)
	if err != nil {
		return err
	}
	defer right.Give()
	p.DryRun = false
	p.Purged, err = p.scope.Purge(ctx, deadletter.PurgeOptions{Rate: p.rate, Valid: right.Valid, Progress: shown})
	if p.Purged == 0 {
		return p.store.c.Explain(err)
	}
	e := deadletter.Event{Type: deadletter.PurgedEvent, API: p.of.Filter.API, Key: p.of.Filter.Key, Data: deadletter.OperationData{
		Who: by, Selection: p.of.Said, Letters: p.Purged,
	}}
	if err := e.Publish(context.WithoutCancel(ctx), p.store.c.JetStream); err != nil {
		unsaid(fmt.Errorf("purged, but the notification could not be stored: %w", err))
	}
	return p.store.c.Explain(err)
}
