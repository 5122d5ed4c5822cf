package letters

import (
	"context"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/connect"
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
}

// PurgeOf returns what a purge of some letters would do, at a rate; nil: as fast as the server can.
func PurgeOf(found *deadletter.Contents, rate *bucket.Rate) *Purge {
	p := &Purge{
		Letters: found.Letters, Bytes: found.Bytes, Oldest: new(found.Oldest.UTC()), Newest: new(found.Newest.UTC()),
		Billed: found.Billed, MaybeBilled: found.Maybe, Cost: config.Money(0).String(),
	}
	if rate != nil {
		p.DurationMS = int64(float64(found.Letters-1) * rate.Per.Seconds() * 1e3 / float64(rate.Count))
	}
	return p
}

// Operation is what was done to letters, for the event.
type Operation struct {
	Who       string
	API, Key  string // that were selected, "" for all
	Selection string
}

// TellPurged publishes the event that letters were purged.
func (o Operation) TellPurged(ctx context.Context, c *connect.Connection, purged int) error {
	return deadletter.Event{
		Type: deadletter.PurgedEvent, API: o.API, Key: o.Key, Data: deadletter.OperationData{Who: o.Who, Selection: o.Selection, Letters: purged},
	}.Publish(ctx, c.JetStream)
}
