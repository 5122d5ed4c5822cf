package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"weir/cmd/weir/internal/connect"
	"weir/deadletter"
)

// foreignLook is how often a running worker looks: it must know within a minute, and a look may fail while JetStream elects.
const foreignLook = 20 * time.Second

// foreignWatch looks whether a stream of somebody else's takes jobs. While one does the worker is not ready. It still takes and
// calls the jobs: it gets each of them beside the stream, and leaving them would lose what producers believe to be stored.
type foreignWatch struct {
	js       jetstream.JetStream
	instance string
	every    time.Duration
	log      *slog.Logger
	count    prometheus.Gauge

	found atomic.Pointer[foreignStreams] // by the last look that was answered
	blind bool                           // the last look was not answered
	told  string                         // what the last event said; empty: that no stream is there
}

func newForeignWatch(w *Worker) *foreignWatch {
	f := &foreignWatch{
		js: w.js, instance: w.settings.Instance, every: foreignLook, log: w.log.With("component", "streams"),
		count: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_foreign_streams", Help: "Streams that are not weir's and answer producers in its place: they must be changed or removed.",
		}),
	}
	f.found.Store(&foreignStreams{})
	w.registry.MustRegister(f.count)
	return f
}

// refuse looks once, before anything is changed, and says why the worker must not start. A user who may not ask is told so in
// the log: then weir cannot know.
func (f *foreignWatch) refuse(ctx context.Context, denied *connect.Denials) error {
	asking, done := denied.Tolerate(ctx)
	defer done()
	found, err := streamsOver(asking, f.js, nobodysOwn, jobSubjects)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		f.cannotLook(err)
		return nil
	}
	return found.err()
}

// run looks until ctx ends.
func (f *foreignWatch) run(ctx context.Context) error {
	tick := time.NewTicker(f.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.look(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// look asks once, and tells what has changed: in the log, by the metric, by readiness and by an event.
func (f *foreignWatch) look(ctx context.Context) {
	found, err := streamsOver(ctx, f.js, nobodysOwn, jobSubjects)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		f.cannotLook(err)
		return
	case f.blind:
		f.blind = false
		f.log.Info("streams can be looked at again")
	}
	before := f.found.Swap(&found)
	f.count.Set(float64(len(found)))
	switch {
	case found.names() == before.names():
	case len(found) > 0:
		f.log.Error("not ready", "err", found.err())
	default:
		f.log.Info("no stream takes jobs in weir's place any more: ready again", "streams", before.String())
	}
	f.tell(ctx, found)
}

// cannotLook says once that nothing is known; what was known stays.
func (f *foreignWatch) cannotLook(err error) {
	if !f.blind {
		f.log.Warn("weir cannot look whether a stream takes jobs in its place: let its user publish to $JS.API.STREAM.NAMES (the role worker of deploy/nats)",
			"subjects", jobSubjects, "err", err)
	}
	f.blind = true
}

// healthData is what unhealthy and healthy events tell.
type healthData struct {
	Instance string         `json:"instance"`
	Why      string         `json:"why"`
	Streams  foreignStreams `json:"streams,omitempty"`
}

// tell stores an event of what was found, if the last one said something else. One that cannot be stored is tried again at the
// next look.
func (f *foreignWatch) tell(ctx context.Context, found foreignStreams) {
	now := found.names()
	if now == f.told {
		return
	}
	e := deadletter.Event{Type: deadletter.HealthyEvent, Data: healthData{Instance: f.instance, Why: "no stream takes jobs in weir's place any more"}}
	if len(found) > 0 {
		e.Type = deadletter.UnhealthyEvent
		e.Data = healthData{Instance: f.instance, Why: found.err().Error(), Streams: found[:min(len(found), mostForeign)]}
	}
	ctx, cancel := context.WithTimeout(ctx, foreignTimeout)
	defer cancel()
	if err := e.Publish(ctx, f.js); err != nil {
		f.log.Warn("an event could not be stored; trying again", "err", err)
		return
	}
	f.told = now
}

// err says why the worker is not ready, nil when it is.
func (f *foreignWatch) err() error { return f.found.Load().err() }

// names are the streams without what changes while they stand: how much they hold.
func (f foreignStreams) names() string {
	if len(f) == 0 {
		return ""
	}
	text := ""
	for _, s := range f {
		text += fmt.Sprintln(s.Name, s.Subjects)
	}
	return text
}

// refuseForeign refuses a start beside a stream that takes jobs. The server inside stops with weir, so it is said how to get at
// a stream that stands there.
func (w *Worker) refuseForeign(ctx context.Context) error {
	w.foreign = newForeignWatch(w)
	err := w.foreign.refuse(ctx, &w.denied)
	if err == nil || w.server == nil || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("%w. The stream is in weir's own store: run `weir nats-server --dir %s`, change or remove the stream there, stop that server, and start weir again",
		err, w.settings.DataDir)
}
