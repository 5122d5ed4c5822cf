package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/bucket/lease"
)

// TestReplicasShareTheWork: three replicas call under one set of limits, each its part.
func TestReplicasShareTheWork(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	yaml := fmt.Sprintf(replicaAPI, "idempotency: {header: Idempotency-Key}") +
		"    limits:\n      - {name: account, rate: 150/s}\n      - {name: concurrent, in_flight: 40}\n"
	r := newReplicas(t, oneServer(t), 3, yaml, "WEIR_REDIS_URL=redis://"+redis.addr)
	least := func() int {
		by := r.callsBy()
		return min(by["replica-0"], by["replica-1"], by["replica-2"])
	}
	r.underLoad(24, 150*time.Millisecond, func(ctx context.Context) {
		r.awaitCalls(ctx, 600)
		for range 10 { // on a busy machine a replica that has just come takes its part late
			if least() >= 60 {
				return
			}
			r.awaitCalls(ctx, 300)
		}
	})
	r.judge("idempotency")
	r.checkArrivals(sharedRate("account", 150, 1))
	by := r.callsBy()
	t.Logf("calls by replica: %v", by)
	for i := range 3 {
		if name := fmt.Sprintf("replica-%d", i); by[name] < 60 {
			t.Errorf("%s made %d of %d calls", name, by[name], len(r.api.All()))
		}
	}
}

// TestReplicaKilled: what a replica that is killed owned others go on with; nothing is lost, and nothing called twice.
func TestReplicaKilled(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, oneServer(t), 2, fmt.Sprintf(replicaAPI, notIdempotent))
	r.underLoad(8, 22*time.Millisecond, func(ctx context.Context) {
		r.awaitCalls(ctx, 200)
		r.procs[0].kill()
		r.awaitCalls(ctx, 1500)
	})
	r.judge(notIdempotent)
	gap := r.longestGap()
	t.Logf("the longest a key waited: %s; calls by replica: %v", gap, r.callsBy())
	if gap > lease.Term+14*time.Second {
		t.Errorf("a key was not called for %s", gap)
	}
}

// TestReplicasKilled kills one replica after the other, and starts it again: as often as WEIR_TEST_KILLS says.
func TestReplicasKilled(t *testing.T) {
	t.Parallel()
	kills, _ := strconv.Atoi(os.Getenv("WEIR_TEST_KILLS"))
	if kills == 0 {
		t.Skip("set WEIR_TEST_KILLS to how often")
	}
	for _, line := range []string{notIdempotent, "idempotency: {header: Idempotency-Key}"} {
		r := newReplicas(t, oneServer(t), 3, fmt.Sprintf(replicaAPI, line))
		r.underLoad(8, 22*time.Millisecond, func(ctx context.Context) {
			for n := range kills {
				r.awaitCalls(ctx, 200)
				r.procs[n%3].kill()
				r.awaitCalls(ctx, 200)
				r.startOne(n % 3)
			}
		})
		r.judge(line)
		t.Logf("the longest a key waited: %s; calls by replica: %v", r.longestGap(), r.callsBy())
	}
}

// TestReplicaStopped: a replica that was stopped for longer than its lease makes no call of what others own by then.
func TestReplicaStopped(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, oneServer(t), 2, fmt.Sprintf(replicaAPI, notIdempotent))
	r.underLoad(8, 22*time.Millisecond, func(ctx context.Context) {
		r.awaitCalls(ctx, 200)
		r.signal(0, freezes)
		time.AfterFunc(lease.Term*3/2, func() { _ = r.procs[0].cmd.Process.Signal(thaws) })
		r.awaitCalls(ctx, 3200)
	})
	r.judge(notIdempotent)
	t.Logf("calls by replica: %v", r.callsBy())
}

// TestRollingRestart: replicas are replaced one after the other, and no producer notices that asks again.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, oneServer(t), 3, fmt.Sprintf(replicaAPI, notIdempotent))
	r.underLoad(8, 22*time.Millisecond, func(ctx context.Context) {
		for i := range r.procs {
			r.awaitCalls(ctx, 150)
			r.stopOne(i)
			r.awaitCalls(ctx, 50)
			r.startOne(i)
		}
	})
	r.judge(notIdempotent)
	for id, out := range r.outcomes() {
		if !strings.HasPrefix(out[0], "done") {
			t.Errorf("%s ended as %v", id, out)
		}
	}
	t.Logf("the longest a key waited: %s; calls by replica: %v", r.longestGap(), r.callsBy())
}
