package worker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/queue"
	"weir/cmd/weir/internal/connect"
	"weir/cmd/weir/internal/control"
)

// dedupe is for how long ids are known by the configuration that is to be in force, and for how long they were known by the
// versions before it: a job that waits was taken under the version of its time.
func (a *adoption) dedupe(ctx context.Context) (*queue.Dedupe, error) {
	entries, err := a.home.History(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the former configurations: %w", err)
	}
	var d *queue.Dedupe
	for _, entry := range entries {
		v, err := control.ReadVersion(entry)
		switch {
		case err != nil: // nobody follows it
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
		d.Changing(a.file.config.Dedupe, time.Now()) // open brings the streams to it
	}
	return d, nil
}

// dedupeChanged notes that the queues' streams know ids for as long as the newest configuration says. Jobs are stamped by the
// servers' clock, so the server is asked for the time. While it does not tell, nothing is decided about jobs for which the old and
// the new configuration differ.
func dedupeChanged(ctx context.Context, js jetstream.JetStream, dedupe *queue.Dedupe, log *slog.Logger) {
	s, err := js.Stream(ctx, "KV_"+connect.ConfigBucket)
	if err != nil {
		log.Warn("the server does not say what time it is: jobs sent again under their ids may become letters unknown", "err", err)
		return
	}
	dedupe.Changed(s.CachedInfo().TimeStamp)
}
