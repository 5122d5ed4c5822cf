package worker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/admin"
)

// dedupe returns how long ids are remembered, by the adopted configuration and by every version before it. Former
// versions matter because a waiting job follows the version under which it was accepted.
func (a *adoption) dedupe(ctx context.Context) (*queue.Dedupe, error) {
	entries, err := a.home.History(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the former configurations: %w", err)
	}
	var d *queue.Dedupe
	for _, entry := range entries {
		v, err := admin.ReadVersion(entry)
		switch {
		case err != nil: // no replica follows an unreadable version
		case d == nil:
			d = queue.NewDedupe(v.Config.Dedupe)
		default:
			d.Changing(v.Config.Dedupe, entry.Created())
			d.Changed(entry.Created().Add(followTimeout))
		}
	}
	if d == nil {
		return queue.NewDedupe(a.present.Config.Dedupe), nil
	}
	if a.file != nil {
		d.Changing(a.file.config.Dedupe, time.Now()) // open adapts the streams to the file
	}
	return d, nil
}

// dedupeChanged records that the queues' streams now remember ids for as long as the newest configuration says. It
// takes the time of the change from the server, because jobs carry the server's time. If the server does not answer,
// jobs for which the old and the new configuration differ stay undecided.
func dedupeChanged(ctx context.Context, js jetstream.JetStream, dedupe *queue.Dedupe, log *slog.Logger) {
	s, err := stream.Look(ctx, js, "KV_"+connect.ConfigBucket)
	if err != nil {
		log.Warn("the server does not report its time: resubmitted jobs may become letters unknown", "err", err)
		return
	}
	dedupe.Changed(s.CachedInfo().TimeStamp)
}
