package replicas

import (
	"context"
	"fmt"
	"testing"
	"time"

	"weir/bucket/lease"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/referee"
	"weir/cmd/weir/weirtest/servers"
)

// TestReplicasShareTheWork: three replicas call under one set of limits, each its part.
func TestReplicasShareTheWork(t *testing.T) {
	t.Parallel()
	redis := servers.StartRedis(t)
	yaml := fmt.Sprintf(weirtest.ReplicaAPI, "idempotency: {header: Idempotency-Key}") +
		"    limits:\n      - {name: account, rate: 150/s}\n      - {name: concurrent, in_flight: 40}\n"
	r := weirtest.NewReplicas(t, servers.OneServer(t), 3, yaml, "WEIR_REDIS_URL=redis://"+redis.Addr)
	least := func() int {
		by := r.CallsBy()
		return min(by["replica-0"], by["replica-1"], by["replica-2"])
	}
	r.UnderLoad(24, 150*time.Millisecond, func(ctx context.Context) {
		r.AwaitCalls(ctx, 600)
		// On a busy machine a replica takes its part late.
		for began := time.Now(); least() < 60 && time.Since(began) < weirtest.Patience; {
			r.AwaitCalls(ctx, 300)
		}
	})
	r.Judge("idempotency")
	r.CheckArrivals(referee.SharedRate("account", 150, 1))
	by := r.CallsBy()
	t.Logf("calls by replica: %v", by)
	for i := range 3 {
		if name := fmt.Sprintf("replica-%d", i); by[name] < 60 {
			t.Errorf("%s made %d of %d calls", name, by[name], len(r.API.All()))
		}
	}
}

// TestReplicaKilled: what a replica that is killed owned others go on with; nothing is lost, and nothing called twice. How
// long that takes is the schedule of ownership, which package ownership tests in virtual time.
func TestReplicaKilled(t *testing.T) {
	t.Parallel()
	r := weirtest.NewReplicas(t, servers.OneServer(t), 2, fmt.Sprintf(weirtest.ReplicaAPI, weirtest.NotIdempotent))
	r.UnderLoad(8, 22*time.Millisecond, func(ctx context.Context) {
		r.AwaitCalls(ctx, 200)
		r.Procs[0].Kill()
		r.AwaitCalls(ctx, 1500)
	})
	r.Judge(weirtest.NotIdempotent)
	if by := r.CallsBy(); by["replica-1"] < 1400 { // all but those that were under way
		t.Errorf("calls by replica: %v", by)
	}
}

// TestReplicaStopped: a replica that was stopped for longer than its lease makes no call of what others own by then.
func TestReplicaStopped(t *testing.T) {
	t.Parallel()
	r := weirtest.NewReplicas(t, servers.OneServer(t), 2, fmt.Sprintf(weirtest.ReplicaAPI, weirtest.NotIdempotent))
	r.UnderLoad(8, 22*time.Millisecond, func(ctx context.Context) {
		r.AwaitCalls(ctx, 200)
		r.Signal(0, program.Freezes)
		<-time.After(lease.Term * 3 / 2)
		r.Signal(0, program.Thaws)
		r.AwaitCalls(ctx, 800)
	})
	r.Judge(weirtest.NotIdempotent)
	t.Logf("calls by replica: %v", r.CallsBy())
}
