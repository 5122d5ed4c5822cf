package queue

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"weir/bucket/natstest"
)

// TestWaitingOnAReplicaThatLags checks that Arrivals finds all waiting jobs that the streams' leaders have, although
// the replica that delivers them lags. It finds only the jobs of a key if one is named, and no jobs of an api without a
// queue.
func TestWaitingOnAReplicaThatLags(t *testing.T) {
	p := newTestPartition(t)
	p.publishJobs(t, 0, 40)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	found := atomic.Int32{}
	place, err := Arrivals(ctx, natstest.Lagging{JetStream: p.queue.js}, Asked{API: "pay"}, func(string, nats.Header) { found.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	if found.Load() != 40 || len(place) != 1 || place[0] < 40 {
		t.Errorf("%d of 40 waiting jobs were found, up to %v", found.Load(), place)
	}
	keys := map[string]int{}
	if _, err := Arrivals(ctx, p.queue.js, Asked{API: "pay", Keys: []string{"k1"}}, func(key string, _ nats.Header) { keys[key]++ }); err != nil || len(keys) != 1 || keys["k1"] == 0 {
		t.Errorf("of one key %v are found, %v", keys, err)
	}
	if _, err := Arrivals(ctx, p.queue.js, Asked{API: "none"}, func(string, nats.Header) { t.Error("a job of no api is found") }); err != nil {
		t.Error(err)
	}
	p.publishJobs(t, 40, 47)
	for _, c := range []struct {
		what  string
		after Frontier
		want  int32
	}{
		{"only what came since is found", place, 7},
		{"a stream that has lost what was read is read whole", Frontier{place[0] + 1000}, 47},
	} {
		found.Store(0)
		if _, err := Arrivals(ctx, p.queue.js, Asked{API: "pay", After: c.after}, func(string, nats.Header) { found.Add(1) }); err != nil || found.Load() != c.want {
			t.Errorf("%s: %d of %d, %v", c.what, found.Load(), c.want, err)
		}
	}
}

// TestCountJobsOnAReplicaThatLags checks that CountJobs counts the jobs that the stream's leader has, without markers.
func TestCountJobsOnAReplicaThatLags(t *testing.T) {
	p := newTestPartition(t)
	if _, err := p.Own(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	count := func(want int) {
		t.Helper()
		api, jobs, err := CountJobs(t.Context(), laggingConsumers{p.queue.js}, p.source.name)
		if err != nil || api != "pay" || jobs != want {
			t.Errorf("%d jobs of api %q, want %d, %v", jobs, api, want, err)
		}
	}
	count(0)
	for _, kind := range []string{kindIntent, kindRetry, kindRetry} {
		if _, err := p.queue.js.Publish(t.Context(), queueSubject("pay", 0, kind, nuid.Next()), []byte("[]")); err != nil {
			t.Fatal(err)
		}
		count(0)
	}
	p.publishJobs(t, 0, 40)
	count(40)
}

// laggingConsumers creates consumers whose streams lack their newest messages.
type laggingConsumers struct{ jetstream.JetStream }

// CreateConsumer implements jetstream.JetStream.
func (l laggingConsumers) CreateConsumer(ctx context.Context, _ string, cfg jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	behind, err := l.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "BEHIND", Storage: jetstream.MemoryStorage})
	if err != nil {
		return nil, err
	}
	cfg.FilterSubject = ""
	return behind.CreateConsumer(ctx, cfg)
}
