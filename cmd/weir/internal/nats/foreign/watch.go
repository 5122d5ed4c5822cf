package foreign

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"weir/cmd/weir/internal/nats/connect"
	"weir/deadletter"
)

// LookEvery is the time between two looks of a running worker. weir must notice a stream within a minute, and a look
// may fail while JetStream elects a leader.
const LookEvery = 20 * time.Second

// Watch looks for foreign streams that take jobs. While there is one, the worker is not ready. The worker still accepts
// and calls jobs: it gets each job as the stream does, and if it ignored a job, the job would be lost although its
// producer got an answer.
type Watch struct {
	js       jetstream.JetStream
	instance string
	log      *slog.Logger
	count    prometheus.Gauge

	found atomic.Pointer[Streams] // the streams of the last look that succeeded
	blind bool                    // the last look failed
	told  string                  // the names in the last event; empty: no stream
}

// NewWatch returns the Watch of one replica, and registers its metric.
func NewWatch(js jetstream.JetStream, instance string, registry prometheus.Registerer, log *slog.Logger) *Watch {
	f := &Watch{
		js: js, instance: instance, log: log.With("component", "streams"),
		count: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_foreign_streams", Help: "Streams that are not weir's and answer producers in its place: they must be changed or removed.",
		}),
	}
	f.found.Store(&Streams{})
	registry.MustRegister(f.count)
	return f
}

// Refuse looks once, before the start changes anything, and returns why the worker must not start. If the server does
// not let this user list streams, Refuse logs that and returns nil.
func (f *Watch) Refuse(ctx context.Context, denied *connect.Denials) error {
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

// Run looks every LookEvery until ctx ends.
func (f *Watch) Run(ctx context.Context) error {
	tick := time.NewTicker(LookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.Look(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// Look looks once and reports changes in the log, by the metric, by readiness and by an event.
func (f *Watch) Look(ctx context.Context) {
	found, err := streamsOver(ctx, f.js, nobodysOwn, jobSubjects)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		f.cannotLook(err)
		return
	case f.blind:
		f.blind = false
		f.log.Info("can read the streams again")
	}
	before := f.found.Swap(&found)
	f.count.Set(float64(len(found)))
	switch {
	case found.names() == before.names():
	case len(found) > 0:
		f.log.Error("not ready", "err", found.err())
	default:
		f.log.Info("no foreign stream takes jobs any more: ready again", "streams", before.String())
	}
	f.tell(ctx, found)
}

// cannotLook logs that a look failed, once until a look succeeds. The last known state stays.
func (f *Watch) cannotLook(err error) {
	if !f.blind {
		f.log.Warn("cannot check whether a foreign stream takes jobs: let weir's user publish to $JS.API.STREAM.NAMES (the role worker of deploy/nats)",
			"subjects", jobSubjects, "err", err)
	}
	f.blind = true
}

// HealthData is the data of unhealthy and healthy events.
type HealthData struct {
	Instance string  `json:"instance"`
	Why      string  `json:"why"`
	Streams  Streams `json:"streams,omitempty"`
}

// tell stores an event about the streams found, if they differ from those of the last event. If it cannot store the
// event, the next look tries again.
func (f *Watch) tell(ctx context.Context, found Streams) {
	now := found.names()
	if now == f.told {
		return
	}
	e := deadletter.Event{Type: deadletter.HealthyEvent, Data: HealthData{Instance: f.instance, Why: "no stream takes jobs in weir's place any more"}}
	if len(found) > 0 {
		e.Type = deadletter.UnhealthyEvent
		e.Data = HealthData{Instance: f.instance, Why: found.err().Error(), Streams: found[:min(len(found), mostForeign)]}
	}
	ctx, cancel := context.WithTimeout(ctx, foreignTimeout)
	defer cancel()
	if err := e.Publish(ctx, f.js); err != nil {
		f.log.Warn("could not store an event; trying again", "err", err)
		return
	}
	f.told = now
}

// Err returns why the worker is not ready, nil if no foreign stream was found.
func (f *Watch) Err() error { return f.found.Load().err() }

// names returns the streams' names and subjects, without the numbers of messages, which change all the time.
func (f Streams) names() string {
	if len(f) == 0 {
		return ""
	}
	text := ""
	for _, s := range f {
		text += fmt.Sprintln(s.Name, s.Subjects)
	}
	return text
}
