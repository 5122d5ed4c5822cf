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

// dedupe returns how long ids are remembered under the configuration about to be in force and under the versions before
// it. A waiting job was accepted under the version of its time.
func (a *adoption) dedupe(ctx context.Context) (*queue.Dedupe, error) {
	entries, err := a.home.History(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the former configurations: %w", err)
	}
	var d *queue.Dedupe
	for _, entry := range entries {
		v, err := admin.ReadVersion(entry)
		switch {
		case err != nil: // no replica follows it
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
		d.Changing(a.file.config.Dedupe, time.Now()) // open adapts the streams to it
	}
	return d, nil
}

// dedupeChanged records that the queues' streams remember ids for as long as the newest configuration says. Jobs carry
// the servers' time, so the server is asked for the time. Until it answers, no decision is made about jobs for which
// the old and the new configuration differ.
func dedupeChanged(ctx context.Context, js jetstream.JetStream, dedupe *queue.Dedupe, log *slog.Logger) {
	s, err := stream.Look(ctx, js, "KV_"+connect.ConfigBucket)
	if err != nil {
		log.Warn("the server does not report its time: resubmitted jobs may become letters unknown", "err", err)
		return
	}
	dedupe.Changed(s.CachedInfo().TimeStamp)
}
