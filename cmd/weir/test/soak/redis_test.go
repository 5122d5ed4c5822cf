package soak

import (
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/config/secret"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/referee"
	"weir/cmd/weir/weirtest/servers"
)

// TestRedisFlushed: a Redis that has lost everything gives nothing away. What it had counted comes from the ledger, so
// that the budget is neither exceeded nor forfeited.
func TestRedisFlushed(t *testing.T) {
	t.Parallel()
	const jobs = 320
	r := weirtest.NewRedisRig(t, fakeapi.Options{KeepBody: 64}, weirtest.RedisYAML)
	client := r.Server.Client()
	r.SubmitMany(0, jobs)
	for _, n := range []int{60, 120, 220} {
		r.AwaitCalls(n)
		if err := client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	r.Eventually("an empty queue", func() bool { return r.Store().Waiting("pay") == 0 })
	r.Check(bucket.Rate{Count: 30, Per: time.Second, Burst: 1}, referee.SharedRate("account", 100, 1), referee.ThreeSeconds)
	if n := len(r.API.All()); n != 300 {
		t.Errorf("%d calls for a budget of 300", n)
	}
	if letters := r.Store().Messages("WEIR_DEAD"); letters != jobs-300 {
		t.Errorf("%d letters over budget, want %d", letters, jobs-300)
	}
}

// TestRedisOverARestart: the worker stops and starts, and Redis is emptied in between: what was used is known.
func TestRedisOverARestart(t *testing.T) {
	t.Parallel()
	const jobs = 320
	r := weirtest.NewRedisRig(t, fakeapi.Options{KeepBody: 64}, weirtest.RedisYAML)
	client := r.Server.Client()
	r.SubmitMany(0, jobs)
	r.AwaitCalls(60)
	r.Stop()
	r.Start()
	r.AwaitCalls(160)
	r.Stop()
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	r.Start()
	r.Eventually("an empty queue", func() bool { return r.Store().Waiting("pay") == 0 })
	r.Check(bucket.Rate{Count: 30, Per: time.Second, Burst: 1}, referee.SharedRate("account", 100, 1), referee.ThreeSeconds)
	if n := len(r.API.All()); n != 300 {
		t.Errorf("%d calls for a budget of 300", n)
	}
}

// TestLimitsChangeHands: Redis counts, then the process, then Redis again; what was used stays used.
func TestLimitsChangeHands(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRedisRig(t, fakeapi.Options{KeepBody: 64}, weirtest.RedisYAML)
	r.SubmitMany(0, 320)
	shared := r.Redis
	for i, n := range []int{60, 130, 210} {
		r.AwaitCalls(n)
		r.Stop()
		if r.Redis = shared; i%2 == 0 {
			r.Redis = secret.Value{}
		}
		r.Start()
	}
	r.Eventually("an empty queue", func() bool { return r.Store().Waiting("pay") == 0 })
	r.Check(bucket.Rate{Count: 30, Per: time.Second, Burst: 1}, referee.SharedRate("account", 100, 1), referee.ThreeSeconds)
	if n := len(r.API.All()); n != 300 {
		t.Errorf("%d calls for a budget of 300", n)
	}
}

// TestRedisKilledWorkers: the worker is killed again and again; Redis knows what its calls took.
func TestRedisKilledWorkers(t *testing.T) {
	t.Parallel()
	const line = "idempotency: {header: Idempotency-Key}"
	restartUnderLoad(t, line, 5, (*program.Process).Kill, "WEIR_REDIS_URL=redis://"+servers.StartRedis(t).Addr).Judge(line)
}
