package queue

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/natstest"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestCeilingRaisedByOthers checks a replica whose streams another replica has raised by a configuration that this
// replica does not have. It must still hold its keys to their capacity: after it has looked, and before, when its last
// look is too old.
func TestCeilingRaisedByOthers(t *testing.T) {
	for _, looks := range []bool{true, false} {
		t.Run(fmt.Sprintf("looks=%t", looks), func(t *testing.T) {
			nc, err := nats.Connect(natstest.Start(t, t.TempDir(), 0).ClientURL(), nats.Timeout(await.Patience))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			behind := openBeside(t, nc, 10)
			behind.ceiling.every = map[bool]time.Duration{true: 10 * time.Millisecond, false: time.Hour}[looks]
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- behind.Run(ctx) }()
			openBeside(t, nc, 100)
			if !looks {
				behind.ceiling.looked.Store(int64(bucket.MicrosOf(time.Now().Add(-2 * ceilingStale))))
			}
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for limit := time.After(90 * time.Second); looks && behind.ceiling.jobs.Load() < 100; {
				select {
				case <-tick.C:
				case <-limit:
					t.Fatal("it does not look")
				}
			}
			taken := 0
			for i := range 30 {
				if behind.take(t, i) == nil {
					taken++
				}
			}
			if taken != 10 {
				t.Errorf("it took %d jobs of a key that holds 10", taken)
			}
			stop()
			if err := await.Receive(t, "the end of the queue", ended); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestKeysOfAnUnboundedStreamAreCounted takes the bound off a queue's streams by hand. A queue that opens after that,
// and one that looks again, must still hold their keys to their capacity.
func TestKeysOfAnUnboundedStreamAreCounted(t *testing.T) {
	nc, err := nats.Connect(natstest.Start(t, t.TempDir(), 0).ClientURL(), nats.Timeout(await.Patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	before := openBeside(t, nc, 2)
	for p := range before.partitions {
		made, err := before.js.Stream(t.Context(), StreamName("pay", p))
		if err != nil {
			t.Fatal(err)
		}
		cfg := made.CachedInfo().Config
		cfg.MaxMsgsPerSubject, cfg.DiscardNewPerSubject = -1, false
		if _, err := before.js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	if err := before.lookUpCeiling(t.Context()); err != nil || !before.above(1000) {
		t.Errorf("a key that holds 1000 is not counted: %v", err)
	}
	q := openBeside(t, nc, 2)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	for i := range 3 {
		if refusal := q.take(t, i); (refusal == nil) != (i < 2) {
			t.Errorf("job %d of a key that holds 2: %v", i+1, refusal)
		}
	}
	stop()
	if err := await.Receive(t, "the end of the queue", ended); err != nil {
		t.Error(err)
	}
}

// TestOthersJobsCount checks that a replica counts jobs that other replicas have stored, even before it has read them.
func TestOthersJobsCount(t *testing.T) {
	nc, err := nats.Connect(natstest.Start(t, t.TempDir(), 0).ClientURL(), nats.Timeout(await.Patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	openBeside(t, nc, 100) // what the streams let in
	owner, other := openBeside(t, nc, 20), openBeside(t, nc, 20)
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer func() { await.Return(t, "the end of queues and reader", work.Wait) }()
	defer stop()
	for _, q := range []*Queue{owner, other} {
		work.Go(func() { _ = q.Run(ctx) })
	}
	p := owner.Partition("k")
	if _, err := p.Own(ctx, "owner"); err != nil {
		t.Fatal(err)
	}
	caughtUp, reads, goOn := make(chan struct{}), make(chan struct{}, 100), make(chan struct{})
	work.Go(func() {
		_ = p.Read(ctx, ReadOptions{
			Mark: func(Entry) {}, MarkersLoaded: func() {}, Bodies: func() bool { return true },
			Take: func(Entry) { reads <- struct{}{}; <-goOn }, CaughtUp: func() { close(caughtUp) }, Stalled: func(error) {},
		})
	})
	defer close(goOn)
	await.Receive(t, "the reader to catch up", caughtUp)
	for i := range 20 {
		if refusal := other.take(t, i); refusal != nil {
			t.Fatal(refusal)
		}
	}
	await.Receive(t, "the first job to be read", reads) // the first one only
	for i := range 5 {
		if owner.take(t, 20+i) == nil {
			t.Error("a 21st job was taken of a key that holds 20")
		}
	}
}

// openBeside opens a queue as one of several replicas whose configuration gives each key this capacity.
func openBeside(t *testing.T, nc *nats.Conn, capacity int64) *Queue {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	q, err := OpenQueue(t.Context(), Options{
		Conn: nc, JetStream: js, Others: true,
		Rules: bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Hour, Burst: 1}, InFlight: 1, Capacity: capacity}},
		Settings: Settings{
			StreamSettings: StreamSettings{Replicas: 1, Dedupe: time.Minute}, API: "pay", Partitions: 2, Capacity: capacity, MaxBody: 1 << 10,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func (q *Queue) take(t *testing.T, i int) *ingest.Refusal {
	t.Helper()
	j, refusal := ingest.Parse(ingest.Message{Key: "k", Body: fmt.Appendf(nil, "%d", i)}, &ingest.Rule{API: "pay", Methods: []string{"POST"}, MaxBody: 100}, time.Now())
	if refusal != nil {
		t.Fatal(refusal)
	}
	answer := make(chan *ingest.Refusal, 1)
	q.Put(j, func(_ ingest.Receipt, refusal *ingest.Refusal) { answer <- refusal })
	return await.Receive(t, "the answer to a job", answer)
}
