package settle

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/natstest"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/ownership"
	"weir/dispatcher/schedule"
	"weir/ingest/await"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// settling is a lane with everything that brings its jobs to their ends.
type settling struct {
	*lane.Lane
	settler *Settler
	notes   *HoldNotes
}

// newEnvOnServer returns an Env on a server of its own, as if other replicas may own partitions.
func newEnvOnServer(t *testing.T) *lane.Env {
	t.Helper()
	js := natstest.JetStream(t)
	if err := CreateStreams(t.Context(), StreamOptions{JetStream: js, Replicas: 1}); err != nil {
		t.Fatal(err)
	}
	return &lane.Env{
		Conn: js.Conn(), JS: js, Instance: "weir-0", Now: func() bucket.Micros { return bucket.MicrosOf(time.Now()) }, Ahead: func() bucket.Micros { return 0 },
		Leeway: ledger.Bounds{}.OrDefault().Leeway, Shared: true, Log: slog.New(slog.DiscardHandler), Metrics: lane.NewMetrics(nil), Tail: ledger.NewTail(),
	}
}

// newSettlingRig returns a rig of the api pay.
func newSettlingRig(e *lane.Env, q *queue.Queue, api *httpcall.API) *settling {
	l := lane.New(e, api.Name, q, schedule.OwnClock)
	w := &settling{Lane: l, notes: NewHoldNotes(l)}
	w.settler = New(l, w.notes, func(bool) {})
	w.Terms = e.NewTerms(api, nil)
	w.Sched = schedule.New(w.Terms.Policy, schedule.Pace{MaxStaged: schedule.MaxStaged, MaxCalls: schedule.MaxCalls}, func(string) bucket.Micros { return 0 })
	return w
}

// writing returns the markers of the queue's first partition. They and the letters are written until the test ends.
func writing(t *testing.T, e *lane.Env, q *queue.Queue) *queue.Markers {
	t.Helper()
	markers, err := q.Partitions()[0].Own(t.Context(), "me")
	if err != nil {
		t.Fatal(err)
	}
	writeLetters(t, e, markers.Run)
	return markers
}

// writeLetters opens the letters of an Env. They are written until the test ends, and so is what others write.
func writeLetters(t *testing.T, e *lane.Env, others ...func(context.Context) error) {
	t.Helper()
	letters, err := deadletter.Open(t.Context(), deadletter.Options{
		Conn: e.Conn, JetStream: e.JS, Replicas: 1, MaxAge: time.Hour, MaxBytes: 1 << 20, MaxWaiting: 1 << 20, Log: e.Log,
		Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	e.Letters = letters
	var writers errgroup.Group
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	for _, run := range append(others, letters.Run) {
		writers.Go(func() error { return run(ctx) })
	}
	t.Cleanup(func() { stop(); _ = await.Result(t, "the end of the writers", writers.Wait) })
}

// opened returns a tenure of the rig's first partition, whose queue has been read.
func (w *settling) opened(t ownership.Tenure) *lane.Owned {
	p := lane.NewOwned(w.Lane, 0, t)
	p.Reading = false
	return p
}
