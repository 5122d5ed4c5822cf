package dispatcher

import (
	"log/slog"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/natstest"
	"weir/bucket/queue"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/dispatcher/ownership"
	"weir/dispatcher/schedule"
)

// settling is a lane with what brings its jobs to their ends.
type settling struct {
	*lane
	settler *settler
	notes   *holdNotes
}

// newEnvOnServer returns what lanes share on a server of its own, as if other replicas may own partitions.
func newEnvOnServer(t *testing.T) *env {
	t.Helper()
	js := natstest.JetStream(t)
	if err := CreateStreams(t.Context(), StreamOptions{JetStream: js, Replicas: 1}); err != nil {
		t.Fatal(err)
	}
	return &env{
		conn: js.Conn(), js: js, instance: "weir-0", now: func() bucket.Micros { return bucket.MicrosOf(time.Now()) }, ahead: func() bucket.Micros { return 0 },
		leeway: ledger.Bounds{}.OrDefault().Leeway, shared: true, log: slog.New(slog.DiscardHandler), metrics: newMetrics(nil), tail: ledger.NewTail(),
	}
}

func queueOf(t *testing.T, e *env) *queue.Queue {
	t.Helper()
	q, err := queue.OpenQueue(t.Context(), queue.Options{Conn: e.conn, JetStream: e.js, Settings: queue.Settings{
		StreamSettings: queue.StreamSettings{Replicas: 1, Dedupe: time.Minute}, API: "pay", Partitions: 1, Capacity: 1000, MaxBody: 1 << 10,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// newSettlingRig returns a rig of the api pay.
func newSettlingRig(e *env, q *queue.Queue, api *httpcall.API) *settling {
	l := newLane(e, api.Name, q, schedule.OwnClock)
	w := &settling{lane: l, notes: newHoldNotes(l)}
	w.settler = newSettler(l, w.notes, func(bool) {})
	w.terms = e.newTerms(api, nil)
	w.s = schedule.New(w.terms.policy, schedule.Pace{MaxStaged: schedule.MaxStaged, MaxCalls: schedule.MaxCalls}, func(string) bucket.Micros { return 0 })
	return w
}

// opened returns a tenure of the rig's first partition, whose queue has been read.
func (w *settling) opened(t ownership.Tenure) *partition {
	p := newPartition(w.lane, 0, t)
	p.Reading, p.cache = false, newReadAhead(queue.NewHoldings(1<<30))
	return p
}
