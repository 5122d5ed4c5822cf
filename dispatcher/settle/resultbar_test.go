package settle

import (
	"context"
	"net/url"
	"testing"
	"time"

	"weir/bucket/lease"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/ownership"
	"weir/dispatcher/schedule"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// newOwned returns a worker with a partition that other replicas may own, and a writer of results.
func newOwned(t *testing.T) (w *settling, p *lane.Owned) {
	t.Helper()
	d := newEnvOnServer(t)
	registry, err := lease.OpenRegistry(t.Context(), d.JS, 1)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := registry.Join(t.Context(), lease.Member{Instance: "weir-0"})
	if err != nil {
		t.Fatal(err)
	}
	q, err := queue.OpenQueue(t.Context(), queue.Options{Conn: d.Conn, JetStream: d.JS, Settings: queue.Settings{
		StreamSettings: queue.StreamSettings{Replicas: 1, Dedupe: time.Minute}, API: "pay", Partitions: 1, Capacity: 10, MaxBody: 1 << 10,
	}})
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
	w = newSettlingRig(d, q, &httpcall.API{Name: "pay", URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Rule: &ingest.Rule{API: "pay"}})
	return w, w.opened(ownership.Tenure{Lease: lease})
}

// TestNoResultAfterItsLetter checks that a result that was stored before its job is judged as unknown is found. A
// result that comes later, over a connection that had stalled, is not stored.
func TestNoResultAfterItsLetter(t *testing.T) {
	w, p := newOwned(t)
	d := w.Env
	of := func(seq uint64) *lane.Job {
		return &lane.Job{Job: &schedule.Job{Seq: seq, Queue: &schedule.KeyQueue{Key: "k"}}, Part: p, Message: &ingest.Job{API: "pay", Key: "k", ID: "j"}}
	}
	bar := func(seq uint64) uint64 {
		return await.Result(t, "the bar", func() uint64 {
			j := of(seq)
			at, ok := resultBar{w.settler, j, resultMsgID(j)}.set(t.Context())
			if !ok {
				t.Error("the job was let go of")
			}
			return at
		})
	}
	store := func(seq uint64) *jetstream.PubAck {
		ack, err := d.JS.PublishMsg(t.Context(), &nats.Msg{Subject: ledger.ResultSubject("pay", "k"), Header: nats.Header{
			ingest.HeaderMsgID: {resultMsgID(of(seq))}, ingest.HeaderJobID: {"j"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return ack
	}
	for range 2 { // a second owner's after the first's
		if at := bar(1); at != 0 {
			t.Errorf("an unknown result stands at %d", at)
		}
	}
	if ack := store(1); !ack.Duplicate {
		t.Errorf("a late result is stored at %d", ack.Sequence)
	}
	stored := store(2)
	if at := bar(2); at != stored.Sequence || stored.Duplicate {
		t.Errorf("the result stands at %d, not at %d", stored.Sequence, at)
	}
	stream, err := d.JS.Stream(t.Context(), ledger.ResultsStream)
	if err != nil {
		t.Fatal(err)
	}
	wait, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	for {
		info, err := stream.Info(wait)
		if err != nil {
			t.Fatal(err) // the test's time is over
		}
		if info.State.Msgs == 1 {
			return // what fenced is gone
		}
	}
}
