package queue

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"weir/bucket/natstest"
)

// TestWaitingOnAReplicaThatLags: all waiting jobs are found that the streams' leaders have, though the replica that delivers them has
// not got them yet; of a key only its own; of an api without a queue none.
func TestWaitingOnAReplicaThatLags(t *testing.T) {
	p := newTestPartition(t)
	p.publishJobs(t, 0, 40)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	found := 0
	if err := Waiting(ctx, natstest.Lagging{JetStream: p.queue.js}, "pay", "", func(string, nats.Header) { found++ }); err != nil {
		t.Fatal(err)
	}
	if found != 40 {
		t.Errorf("%d of 40 waiting jobs were found", found)
	}
	keys := map[string]int{}
	if err := Waiting(ctx, p.queue.js, "pay", "k1", func(key string, _ nats.Header) { keys[key]++ }); err != nil || len(keys) != 1 || keys["k1"] == 0 {
		t.Errorf("of one key %v are found, %v", keys, err)
	}
	if err := Waiting(ctx, p.queue.js, "none", "", func(string, nats.Header) { t.Error("a job of no api is found") }); err != nil {
		t.Error(err)
	}
}
