package queue

import (
	"context"
	"fmt"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/natstest"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
)

// usedUp is a partition whose jobs are as large together as a reader asks for at once, to the byte: the first that were published, or all
// and the owner's epoch. How much a message takes is measured with another partition, since it depends on how the server names it.
func usedUp(t *testing.T, jobs int, whole bool) *Partition {
	t.Helper()
	js := natstest.Connect(t, natstest.Start(t, t.TempDir(), 0))
	q, err := OpenQueue(t.Context(), Options{Conn: js.Conn(), JetStream: js, Settings: Settings{
		StreamSettings: StreamSettings{Replicas: 1, Dedupe: time.Minute}, API: "pay", Partitions: 2, Capacity: 1000, MaxBody: 8 << 10,
	}, Rules: bucket.Rules{Key: bucket.KeyLimits{Capacity: 1000, InFlight: 1, Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1}}}})
	if err != nil {
		t.Fatal(err)
	}
	const size = 1000
	padded, pad := 0, 0 // the job that makes up for what is missing
	fill := func(p *Partition) {
		for i := 1; i <= jobs; i++ {
			n := size
			if i == padded {
				n += pad
			}
			if _, err := js.Publish(t.Context(), queueSubject("pay", p.number, kindJob, fmt.Sprintf("k%d", i%7)), make([]byte, n)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := p.Own(t.Context(), "test"); err != nil {
			t.Fatal(err)
		}
	}
	measured := q.partitions[0]
	fill(measured)
	used := 0
	for _, n := range measured.sizes(t) {
		if !whole && used+n > readBytes {
			break
		}
		used += n
		padded++
	}
	if whole {
		padded = 1
	}
	if pad = readBytes - used; pad < 0 || padded > jobs || !whole && padded == jobs {
		t.Fatalf("%d jobs are %d bytes", jobs, used)
	}
	fill(q.partitions[1])
	sum, n := 0, 0
	for _, size := range q.partitions[1].sizes(t) {
		if sum += size; sum <= readBytes {
			n = sum
		}
	}
	if n != readBytes {
		t.Fatalf("the request is used up but for %d bytes", readBytes-n)
	}
	return q.partitions[1]
}

// sizes is what each message of the partition takes of a request, as the server counts.
func (p *Partition) sizes(t *testing.T) (all []int) {
	t.Helper()
	consumer, err := p.stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 1})
	if err != nil {
		t.Fatal(err)
	}
	msgs, err := consumer.Messages()
	if err != nil {
		t.Fatal(err)
	}
	defer msgs.Stop()
	for {
		msg, err := msgs.Next()
		if err != nil {
			t.Fatal(err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		size := len(msg.Subject()) + len(msg.Reply()) + len(msg.Data())
		if len(msg.Headers()) > 0 {
			size += len("NATS/1.0\r\n\r\n")
		}
		for name, values := range msg.Headers() {
			for _, v := range values {
				size += len(name) + len(": ") + len(v) + len("\r\n")
			}
		}
		if all = append(all, size); meta.NumPending == 0 {
			return all
		}
	}
}

// TestRequestUsedUpToTheByte: a server that has given as many bytes as were asked for, and not one less, tells nobody that it gives no more. The
// reader does not wait until its client misses heartbeats.
func TestRequestUsedUpToTheByte(t *testing.T) {
	for _, c := range []struct {
		what  string
		jobs  int
		whole bool
	}{{"while more waits", 600, false}, {"before more comes", 450, true}} {
		t.Run(c.what, func(t *testing.T) {
			p := usedUp(t, c.jobs, c.whole)
			p.watch, p.heartbeat = time.Hour, 10*time.Second // nobody else is to notice
			taken, caughtUp := make(chan uint64, 2*c.jobs), make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			var ran [2]chan error
			for i, run := range []func() error{
				func() error { return p.queue.Run(ctx) },
				func() error {
					return p.Read(ctx, ReadOptions{
						Mark: func(Entry) {}, MarkersLoaded: func() {}, Take: func(e Entry) { taken <- e.Seq }, Bodies: func() bool { return true },
						CaughtUp: func() { close(caughtUp) }, Damaged: func() {}, Stalled: func(err error) { t.Errorf("stalled: %v", err) },
					})
				},
			} {
				ran[i] = make(chan error, 1)
				go func() { ran[i] <- run() }()
			}
			began := time.Now()
			jobs := c.jobs
			if c.whole {
				await.Receive(t, "the reader to catch up", caughtUp)
				p.putOne(t)
				jobs++
			}
			for range jobs {
				await.Receive(t, "a job", taken)
			}
			if took := time.Since(began); took >= 2*p.heartbeat {
				t.Errorf("the jobs were there after %v: only the client noticed that nothing came", took)
			}
			cancel()
			for _, end := range ran {
				if err := await.Receive(t, "the end", end); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// putOne hands a job in.
func (p *Partition) putOne(t *testing.T) {
	t.Helper()
	key := "k"
	for i := 0; p.queue.Partition(key) != p; i++ {
		key = fmt.Sprintf("k%d", i)
	}
	answer := make(chan *ingest.Refusal, 1)
	p.queue.Put(&ingest.Job{API: "pay", Key: key, ID: "late", DedupeID: "late"}, func(_ ingest.Receipt, no *ingest.Refusal) { answer <- no })
	if no := await.Receive(t, "the receipt", answer); no != nil {
		t.Fatal(no.Description)
	}
}
