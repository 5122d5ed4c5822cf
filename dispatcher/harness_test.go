package dispatcher

import (
	"log/slog"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/natstest"
	"weir/dispatcher/lane"
	"weir/dispatcher/ownership"
	"weir/dispatcher/settle"
)

// dispatcherOf returns a dispatcher with these options, which has opened nothing.
func dispatcherOf(o Options) *Dispatcher {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return newDispatcher(o)
}

// bareWorker returns a worker without a schedule and partitions.
func bareWorker(d *Dispatcher, api string) *apiWorker {
	l := &lane.Lane{Env: d.env, Name: api, Log: slog.New(slog.DiscardHandler), Now: d.env.Now, Wake: make(chan struct{}, 1), Stopping: make(chan struct{}), Stopped: make(chan struct{})}
	w := &apiWorker{Lane: l, d: d, notes: settle.NewHoldNotes(l), slots: &slots{Lane: l}}
	w.settler = settle.New(l, w.notes, func(bool) {})
	w.caller = newCaller(l, w.settler, nil, nil)
	return w
}

// opened returns a tenancy of the worker's first partition, whose queue has been read.
func (w *apiWorker) opened(t ownership.Tenure) *tenancy {
	p := w.newTenancy(0, t)
	p.Reading = false
	p.ForgetLocked()
	return p
}

// newShared returns a dispatcher on a server of its own, as if other replicas may own partitions.
func newShared(t *testing.T) *Dispatcher {
	t.Helper()
	js := natstest.JetStream(t)
	d := dispatcherOf(Options{
		Conn: js.Conn(), JetStream: js, Replicas: 1, Instance: "weir-0", Now: func() bucket.Micros { return bucket.MicrosOf(time.Now()) },
		Ahead: func() bucket.Micros { return 0 },
	})
	if err := EnsureStreams(t.Context(), d.opts); err != nil {
		t.Fatal(err)
	}
	d.owner, d.env.Shared = ownership.NewManager(ownership.ManagerOptions{}), true
	return d
}
