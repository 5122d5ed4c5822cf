package dispatcher

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
	"weir/dispatcher/ledger"
	"weir/dispatcher/ownership"
	"weir/dispatcher/schedule"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
)

// rig is a lane with what brings its jobs to their ends.
type rig struct {
	*lane
	settler *settler
	notes   *holdNotes
	pace    *pace
}

// newShared2 returns what lanes share on a server of its own, as if other replicas may own partitions.
func newShared2(t *testing.T) *env {
	t.Helper()
	return newShared2On(t, natstest.JetStream(t))
}

// newShared2On is newShared2 on a given server.
func newShared2On(t *testing.T, js jetstream.JetStream) *env {
	t.Helper()
	if err := CreateStreams(t.Context(), StreamOptions{JetStream: js, Replicas: 1}); err != nil {
		t.Fatal(err)
	}
	return &env{
		conn: js.Conn(), js: js, instance: "weir-0", now: func() bucket.Micros { return bucket.MicrosOf(time.Now()) }, ahead: func() bucket.Micros { return 0 },
		leeway: ledger.Bounds{}.OrDefault().Leeway, shared: true, log: slog.New(slog.DiscardHandler), metrics: newMetrics(nil), tail: ledger.NewTail(),
	}
}

func payQueue2(t *testing.T, e *env) *queue.Queue {
	t.Helper()
	q, err := queue.OpenQueue(t.Context(), queue.Options{Conn: e.conn, JetStream: e.js, Settings: queue.Settings{
		StreamSettings: queue.StreamSettings{Replicas: 1, Dedupe: time.Minute}, API: "pay", Partitions: 1, Capacity: 1000, MaxBody: 1 << 10,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// newRig returns a rig of the api pay.
func newRig(e *env, q *queue.Queue, api *httpcall.API) *rig {
	l := newLane(e, api.Name, q, schedule.OwnClock)
	w := &rig{lane: l, notes: newHoldNotes(l)}
	w.settler = newSettler(l, w.notes, func(bool) {})
	w.pace = newPace(l, func(string) bucket.Micros { return 0 })
	w.terms = e.newTerms(api, nil)
	w.s = schedule.New(w.terms.policy, schedule.Pace{MaxStaged: schedule.MaxStaged, MaxCalls: schedule.MaxCalls}, w.pace.knownLocked)
	return w
}

// takeover returns a takeover of the rig's first partition.
func (w *rig) takeover(t ownership.Tenure) *Takeover {
	p := newPartition(w.lane, 0, t)
	p.cache = newReadAhead(queue.NewHoldings(1 << 30))
	return newTakeover(p, takeoverOptions{Settler: w.settler, Notes: w.notes, Pace: w.pace, Dropped: func(error) {}})
}

// opened returns a takeover of the rig's first partition, whose queue has been read.
func (w *rig) opened(t ownership.Tenure) *Takeover {
	p := w.takeover(t)
	p.Reading, p.reader.replay = false, nil
	return p
}

// owning returns what lanes share, with a writer of results, and the lease of a partition that other replicas may own.
func owning(t *testing.T) (*env, *lease.Membership) {
	t.Helper()
	d := newShared2(t)
	registry, err := lease.OpenRegistry(t.Context(), d.js, 1)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := registry.Join(t.Context(), lease.Member{Instance: "weir-0"})
	if err != nil {
		t.Fatal(err)
	}
	if d.results, err = stream.NewWriter(d.conn, nil, 10, 1<<20); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- d.results.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := await.Receive(t, "the end of the results", ended); err != nil {
			t.Error(err)
		}
	})
	return d, lease
}
