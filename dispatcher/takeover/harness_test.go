package takeover

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/lease"
	"weir/bucket/natstest"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/ownership"
	"weir/dispatcher/schedule"
	"weir/dispatcher/settle"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
)

// rig is a lane with everything that brings its jobs to their ends.
type rig struct {
	*lane.Lane
	settler *settle.Settler
	notes   *settle.HoldNotes
	pace    *Pace
}

// newEnv returns an Env on a server of its own, as if other replicas may own partitions.
func newEnv(t *testing.T) *lane.Env {
	t.Helper()
	return newEnvOn(t, natstest.JetStream(t))
}

// newEnvOn is newEnv on a given server.
func newEnvOn(t *testing.T, js jetstream.JetStream) *lane.Env {
	t.Helper()
	if err := settle.CreateStreams(t.Context(), settle.StreamOptions{JetStream: js, Replicas: 1}); err != nil {
		t.Fatal(err)
	}
	return &lane.Env{
		Conn: js.Conn(), JS: js, Instance: "weir-0", Now: func() bucket.Micros { return bucket.MicrosOf(time.Now()) }, Ahead: func() bucket.Micros { return 0 },
		Leeway: ledger.Bounds{}.OrDefault().Leeway, Shared: true, Log: slog.New(slog.DiscardHandler), Metrics: lane.NewMetrics(nil), Tail: ledger.NewTail(),
	}
}

func payQueue(t *testing.T, e *lane.Env) *queue.Queue {
	t.Helper()
	q, err := queue.OpenQueue(t.Context(), queue.Options{Conn: e.Conn, JetStream: e.JS, Settings: queue.Settings{
		StreamSettings: queue.StreamSettings{Replicas: 1, Dedupe: time.Minute}, API: "pay", Partitions: 1, Capacity: 1000, MaxBody: 1 << 10,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// newRig returns a rig of the api pay.
func newRig(e *lane.Env, q *queue.Queue, api *httpcall.API) *rig {
	l := lane.New(e, api.Name, q, schedule.OwnClock)
	w := &rig{Lane: l, notes: settle.NewHoldNotes(l)}
	w.settler = settle.New(l, w.notes, func(bool) {})
	w.pace = NewPace(l, func(string) bucket.Micros { return 0 })
	w.Terms = e.NewTerms(api, nil)
	w.Sched = schedule.New(w.Terms.Policy, schedule.Pace{MaxStaged: schedule.MaxStaged, MaxCalls: schedule.MaxCalls}, w.pace.KnownLocked)
	return w
}

// takeover returns a takeover of the rig's first partition.
func (w *rig) takeover(t ownership.Tenure) *Takeover {
	p := lane.NewOwned(w.Lane, 0, t)
	return New(p, Options{Settler: w.settler, Notes: w.notes, Pace: w.pace, Dropped: func(error) {}})
}

// opened returns a takeover of the rig's first partition, whose queue has been read.
func (w *rig) opened(t ownership.Tenure) *Takeover {
	p := w.takeover(t)
	p.Reading, p.reader.replay = false, nil
	return p
}

// owning returns an Env with a writer of results, and the lease of a partition that other replicas may own.
func owning(t *testing.T) (*lane.Env, *lease.Membership) {
	t.Helper()
	d := newEnv(t)
	registry, err := lease.OpenRegistry(t.Context(), d.JS, 1)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := registry.Join(t.Context(), lease.Member{Instance: "weir-0"})
	if err != nil {
		t.Fatal(err)
	}
	if d.Results, err = stream.NewWriter(d.Conn, nil, 10, 1<<20); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- d.Results.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := await.Receive(t, "the end of the results", ended); err != nil {
			t.Error(err)
		}
	})
	return d, lease
}
