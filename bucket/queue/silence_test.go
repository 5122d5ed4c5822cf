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

// usedUp returns a partition whose jobs are exactly as large as a reader's request, to the byte. These are the first
// jobs, or with whole all jobs and the owner's epoch. It measures on another partition how much a message takes,
// because that depends on how the server names it.
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
	padded, pad := 0, 0 // one job is padded to make up the rest
	fill := func(p *Partition) {
		for i := 1; i <= jobs; i++ {
			n := size
			if i == padded {
				n += pad
			}
			if _, err := js.Publish(t.Context(), queueSubject("pay", p.Number(), kindJob, fmt.Sprintf("k%d", i%7)), make([]byte, n)); err != nil {
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

// sizes returns how many bytes of a request each message of the partition takes, as the server counts.
func (p *Partition) sizes(t *testing.T) (all []int) {
	t.Helper()
	consumer, err := p.source.stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 1})
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

// TestRequestUsedUpToTheByte checks a server that has sent exactly as many bytes as were requested, and does not say
// that it sends no more. The reader must not wait until its client misses heartbeats.
func TestRequestUsedUpToTheByte(t *testing.T) {
	for _, c := range []struct {
		what  string
		jobs  int
		whole bool
	}{{"while more waits", 600, false}, {"before more comes", 450, true}} {
		t.Run(c.what, func(t *testing.T) {
			p := usedUp(t, c.jobs, c.whole)
			p.watch, p.heartbeat = time.Hour, 10*time.Second // only the watched part may notice
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

// putOne puts a job.
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

// TestExpectationComesTrue checks that the reader does not look again and again for expected messages that were
// deleted, purged or lost with their stream. Later messages are still missed.
func TestExpectationComesTrue(t *testing.T) {
	dir := t.TempDir()
	ns := natstest.Start(t, dir, 0)
	port := natstest.Port(t, ns)
	p := openTestPartition(t, ns)
	if _, err := p.Own(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	p.contents.begin()
	r := &reading{p: p}
	s := newSilence(r)
	defer s.timer.Stop()
	store := func() { // and expect it, as its own
		t.Helper()
		ack, err := p.queue.js.Publish(t.Context(), queueSubject("pay", 0, kindJob, "k"), nil)
		if err != nil {
			t.Fatal(err)
		}
		p.contents.expected.raise(ack.Sequence)
	}
	waits := func(what string) { // for the timer
		t.Helper()
		if s.news != nil || s.r.silence > mostSilence {
			t.Errorf("%s: it rests, or looks every %v", what, s.r.silence)
		}
	}
	misses := func(what string) {
		t.Helper()
		if !s.lasts(t.Context()) {
			t.Errorf("%s: it is not missed", what)
		}
		s = newSilence(r) // another consumer is set up
		waits(what)
	}
	rests := func(what string) {
		t.Helper()
		if s.lasts(t.Context()) || s.news == nil {
			t.Errorf("%s: it is missed, or will be looked for again", what)
		}
	}
	comes := func(what string) {
		t.Helper()
		store()
		await.Receive(t, what, s.news)
		s.begin()
		misses(what)
	}
	store()
	for range 6 {
		misses("a job that is not given")
	}
	if err := p.source.stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	rests("a stream that was purged")
	comes("a job behind the purge")
	ns.Shutdown()
	ns.WaitForShutdown()
	r.silence = leastSilence
	for range 6 {
		soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if s.lasts(soon) {
			t.Error("it is missed, and the server has not said that it is there")
		}
		cancel()
		waits("a server that does not answer")
	}
	if s.r.silence != mostSilence {
		t.Errorf("a server that does not answer is asked every %v", s.r.silence)
	}
	ns = natstest.Start(t, dir, port)
	await.Until(t, "the connection to be back", p.source.nc.IsConnected)
	misses("a job that stood there all the time")
	p.contents.mu.Lock()
	p.contents.position.seq = p.contents.expected.upTo.Load()
	p.contents.mu.Unlock()
	rests("a stream that was read")
	comes("a job behind what was read")
	if err := p.queue.js.DeleteStream(t.Context(), p.source.name); err != nil {
		t.Fatal(err)
	}
	if s.lasts(t.Context()) {
		t.Error("what a stream had that is gone is missed")
	}
	waits("a stream that is gone")
	again := openTestPartition(t, ns)
	if p.source.stream = again.source.stream; p.contents.expected.upTo.Load() < 3 {
		t.Fatal("the stream had less than it has now")
	}
	p.contents.begin() // a reading ends that finds its stream gone
	s = newSilence(r)
	rests("a stream in which nothing is")
	comes("the first job of a new stream")
}
