package queue

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/ingest/await"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

// newTestPartition returns a partition on a new nats-server.
func newTestPartition(t *testing.T) *Partition {
	t.Helper()
	return openTestPartition(t, natstest.Start(t, t.TempDir(), 0))
}

// storeFailed is the error code that the server may answer with while it still removes the files of an earlier stream
// with the same name.
const storeFailed = jetstream.ErrorCode(10049)

func openTestPartition(t *testing.T, ns *server.Server) *Partition {
	t.Helper()
	js := natstest.Connect(t, ns)
	var q *Queue
	var err error
	await.Until(t, "the server to be done with a former stream of this name", func() bool {
		q, err = OpenQueue(t.Context(), Options{Conn: js.Conn(), JetStream: js, Settings: Settings{
			StreamSettings: StreamSettings{Replicas: 1, Dedupe: time.Minute}, API: "pay", Partitions: 1, Capacity: 1000, MaxBody: 1 << 10,
		}})
		refusal := (*jetstream.APIError)(nil)
		return !errors.As(err, &refusal) || refusal.ErrorCode != storeFailed
	})
	if err != nil {
		t.Fatal(err)
	}
	return q.partitions[0]
}

func (p *Partition) publishJobs(t *testing.T, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if _, err := p.queue.js.Publish(t.Context(), queueSubject("pay", 0, kindJob, fmt.Sprintf("k%d", i%7)), nil); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDeafReaderIsSetUpAnew checks that a reader that makes no progress while there are messages is restarted from its
// last message, and that a reader that has read all messages is not.
func TestDeafReaderIsSetUpAnew(t *testing.T) {
	p := newTestPartition(t)
	p.watch = 20 * time.Millisecond
	if _, err := p.Own(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	p.publishJobs(t, 0, 50)
	ctx, cancel := context.WithCancel(t.Context())
	deaf, all := make(chan error, 100), make(chan struct{})
	var seen []uint64
	var times atomic.Int32
	ended := make(chan error, 1)
	go func() {
		ended <- p.Read(ctx, ReadOptions{
			Take: func(e Entry) {
				if seen = append(seen, e.Seq); len(seen)%10 == 0 && len(seen) < 50 && times.Load() == 0 {
					<-time.After(10 * p.watch) // as if no message were delivered any more
				}
				if len(seen) == 100 {
					close(all)
				}
			},
			Mark: func(Entry) {}, MarkersLoaded: func() {}, Bodies: func() bool { return true }, CaughtUp: func() {},
			Stalled: func(err error) { times.Add(1); deaf <- err },
		})
	}()
	select {
	case err := <-deaf:
		if !errors.Is(err, errStalled) {
			t.Errorf("it was set up anew because of: %v", err)
		}
	case <-time.After(90 * time.Second):
		t.Fatal("nobody noticed that it did not get on")
	}
	p.publishJobs(t, 50, 100)
	await.Receive(t, "all jobs to be read", all)
	// A busy machine may look before the reader has.
	await.Until(t, "a reader that has read all there is to be left alone", func() bool {
		quiet := times.Load()
		<-time.After(5 * p.watch)
		return times.Load() == quiet
	})
	cancel()
	if err := await.Receive(t, "the end of the reader", ended); err != nil {
		t.Error(err)
	}
	for i := 1; i < len(seen); i++ {
		if seen[i] <= seen[i-1] {
			t.Fatalf("message %d was taken after message %d", seen[i], seen[i-1])
		}
	}
}

// stuckStream has first consumers that deliver nothing, like a cluster that loses a new consumer's first request.
type stuckStream struct {
	jetstream.Stream
	empty jetstream.Stream
	stuck *int
}

func (s stuckStream) OrderedConsumer(ctx context.Context, cfg jetstream.OrderedConsumerConfig) (jetstream.Consumer, error) {
	if *s.stuck > 0 {
		*s.stuck--
		return s.empty.OrderedConsumer(ctx, cfg)
	}
	return s.Stream.OrderedConsumer(ctx, cfg)
}

// TestConsumerThatGivesNothing checks that a takeover does not wait for a consumer whose first request is lost, and
// that no stall is reported.
func TestConsumerThatGivesNothing(t *testing.T) {
	p := newTestPartition(t)
	p.publishJobs(t, 0, 50)
	if _, err := p.Own(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	empty, err := p.queue.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "EMPTY", Storage: jetstream.MemoryStorage})
	if err != nil {
		t.Fatal(err)
	}
	stuck := 2
	p.source.stream = stuckStream{p.source.stream, empty, &stuck}
	ctx, cancel := context.WithCancel(t.Context())
	caughtUp, ended, taken := make(chan struct{}), make(chan error, 1), 0
	go func() {
		ended <- p.Read(ctx, ReadOptions{
			Mark: func(Entry) {}, MarkersLoaded: func() {}, Take: func(Entry) { taken++ }, Bodies: func() bool { return true },
			CaughtUp: func() { close(caughtUp) }, Stalled: func(err error) { t.Errorf("stalled: %v", err) },
		})
	}()
	await.Receive(t, "the reader to catch up", caughtUp)
	if taken != 50 || stuck != 0 {
		t.Errorf("took %d of 50 jobs, and %d consumers that give nothing are left", taken, stuck)
	}
	cancel()
	if err := await.Receive(t, "the end of the reader", ended); err != nil {
		t.Error(err)
	}
}

// TestBacklogIsReadWithoutBodies checks three things. Bodies for which there is no room are not sent while the reader
// catches up. Markers are read before their jobs, though they come later in the stream. Later jobs have their bodies.
func TestBacklogIsReadWithoutBodies(t *testing.T) {
	p := newTestPartition(t)
	const jobs, size = 200, 1000
	publish := func(kind, token string) {
		if _, err := p.queue.js.Publish(t.Context(), queueSubject("pay", 0, kind, token), make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range jobs {
		publish(kindJob, fmt.Sprintf("k%d", i))
	}
	publish(kindIntent, "one")
	publish(kindRetry, "two")
	if _, err := p.Own(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	publish(kindRetry, "later") // this owner's own
	ctx, cancel := context.WithCancel(t.Context())
	var marks []EntryKind
	taken, bodies, caughtUp := 0, 0, false
	all := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- p.Read(ctx, ReadOptions{
			Mark: func(e Entry) {
				if marks = append(marks, e.Kind); len(e.Data) != size {
					t.Errorf("a marker has %d bytes", len(e.Data))
				}
			},
			MarkersLoaded: func() {
				if taken != 0 || len(marks) != 2 {
					t.Errorf("%d jobs were read before the markers, which are %v", taken, marks)
				}
			},
			Take: func(e Entry) {
				if taken++; e.Bare == (len(e.Data) == size) {
					t.Errorf("%d bytes, bare: %v", len(e.Data), e.Bare)
				}
				bodies += len(e.Data)
				if taken == jobs+1 {
					if e.Bare {
						t.Error("a job that came later has no body")
					}
					close(all)
				}
			},
			Bodies:   func() bool { return taken < 10 },
			CaughtUp: func() { caughtUp = true },
			Stalled:  func(err error) { t.Error(err) },
		})
	}()
	await.Until(t, "the backlog to be read", func() bool { return p.contents.readTo() >= jobs })
	publish(kindJob, "later")
	await.Receive(t, "all to be read", all)
	cancel()
	if err := await.Receive(t, "the end of the reader", ended); err != nil {
		t.Error(err)
	}
	if bodies != 11*size || !caughtUp || len(marks) != 2 {
		t.Errorf("%d bytes of bodies were read, caught up: %v, markers %v", bodies, caughtUp, marks)
	}
}

// TestAPIOf checks that APIOf distinguishes queues from weir's other streams and from foreign streams.
func TestAPIOf(t *testing.T) {
	for name, want := range map[string]string{
		StreamName("pay", 3): "pay", StreamName("a_1-b", 255): "a_1-b", "WEIR_DEAD": "", "WEIR_RESULTS": "", "KV_weir_control": "", "WEIR__3": "",
		"WEIR_pay_": "", "WEIR_pay_x": "", "THEIRS_pay_3": "",
	} {
		if api, ok := APIOf(name); ok != (want != "") || ok && api != want {
			t.Errorf("%s is of %q, %v; want %q", name, api, ok, want)
		}
	}
}
