package deadletter_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"weir/bucket"
	"weir/deadletter"

	"github.com/nats-io/nats.go/jetstream"
)

// TestManyLetters uses 20,000 letters. It checks that the first page requests and reads no more letters than it shows,
// and that a plan reads the letters a bounded number of times and keeps a bounded number of bytes of each. It reports
// both beside a plain read of the stream.
func TestManyLetters(t *testing.T) {
	if testing.Short() {
		t.Skip("it stores 20,000 letters")
	}
	const count = 20_000
	js := openStream(t)
	bury(t, js, 0, count, 10)
	ctx := t.Context()
	for _, api := range []string{"most", "few"} { // their queues are empty
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{
			Name: "WEIR_" + api + "_0", Subjects: []string{"weir.q." + api + ".0.>"}, Metadata: map[string]string{"weir.partitions": "1"},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	b, err := deadletter.OpenBrowser(ctx, js)
	if err != nil {
		t.Fatal(err)
	}
	nc := js.Conn()
	measure := func(what string, do func() error) (asked, got uint64, took time.Duration) {
		t.Helper()
		before, begun := nc.Stats(), time.Now()
		if err := do(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		after := nc.Stats()
		asked, got, took = after.OutMsgs-before.OutMsgs, after.InMsgs-before.InMsgs, time.Since(begun)
		t.Logf("%s: %d requests, %d messages, %v", what, asked, got, took.Round(time.Millisecond))
		return asked, got, took
	}
	_, bare, _ := measure("a bare reading", func() error { return bareRead(ctx, js, count) })
	asked, got, _ := measure("the first page", func() error {
		return b.Newest(ctx, deadletter.Filter{}, 100, func(deadletter.Kept) error { return nil })
	})
	if asked > 8 || got > 300 {
		t.Errorf("the first page of 100 letters takes %d requests and %d messages", asked, got)
	}
	scope, err := b.Scope(ctx, deadletter.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	r := deadletter.NewRedrive(scope, deadletter.RedriveOptions{
		Conn: nc, Browser: b, Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1},
		Terms: func(string) (deadletter.Terms, bool) {
			return deadletter.Terms{Rules: bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Second, Burst: 1}, Capacity: count}}}, true
		},
		Calls: func(context.Context, deadletter.CallsQuery, func(deadletter.Trace)) (uint64, error) { return 0, nil }, // nothing was ever called
		Valid: func() bool { return false }, Progress: func(*deadletter.Tally) {},
	})
	heap := heapInUse()
	var plan *deadletter.Plan
	_, got, _ = measure("a plan", func() (err error) { plan, err = r.Plan(ctx); return err })
	if plan.Letters != count {
		t.Errorf("the plan is of %d letters", plan.Letters)
	}
	if got > 4*bare {
		t.Errorf("a plan reads %d messages, a bare reading %d", got, bare)
	}
	if each := (heapInUse() - heap) / count; each > 400 {
		t.Errorf("it keeps %d bytes of each letter", each)
	}
	runtime.KeepAlive(r)
}

// heapInUse returns the reachable memory in bytes.
func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// bareRead reads a stream's messages without weir's code.
func bareRead(ctx context.Context, js jetstream.JetStream, count int) error {
	c, err := js.OrderedConsumer(ctx, deadletter.Stream, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		return err
	}
	msgs, err := c.Messages()
	if err != nil {
		return err
	}
	defer msgs.Stop()
	for range count {
		if _, err := msgs.Next(jetstream.NextMaxWait(time.Minute)); err != nil {
			return err
		}
	}
	return nil
}
