package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/worker"
	"weir/ingest/await"
)

// TestRedisMainJob: the main job with shared limits in Redis conforms, and hardly any of the rate is left unused.
func TestRedisMainJob(t *testing.T) {
	t.Parallel()
	const jobs = 600
	r := newRedisRig(t, fakeapi.Options{KeepBody: 64}, `
apis:
  pay:
    url: %s
    idempotency: {header: Idempotency-Key}
    jitter: 20ms
    bucket: {rate: 50/s, capacity: 5000, in_flight: 8}
    limits:
      - {name: account, rate: 150/s}
      - {name: concurrent, in_flight: 40}
`)
	r.submitMany(0, jobs)
	arrivals := r.awaitCalls(jobs)
	r.check(bucket.Rate{Count: 50, Per: time.Second, Burst: 1}, sharedRate("account", 150, 1))
	r.referee().used(arrivals[:jobs*3/4], 100, 150, 0.9) // while every key had jobs
}

// TestRedisFlushed: a Redis that has lost everything gives nothing away. What it had counted comes from the ledger, so
// that the budget is neither exceeded nor forfeited.
func TestRedisFlushed(t *testing.T) {
	t.Parallel()
	const jobs = 320
	r := newRedisRig(t, fakeapi.Options{KeepBody: 64}, redisYAML)
	client := r.server.client()
	r.submitMany(0, jobs)
	for _, n := range []int{60, 120, 220} {
		r.awaitCalls(n)
		if err := client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	r.eventually("an empty queue", func() bool { return r.waiting("pay") == 0 })
	r.check(bucket.Rate{Count: 30, Per: time.Second, Burst: 1}, sharedRate("account", 100, 1), threeSeconds)
	if n := len(r.api.All()); n != 300 {
		t.Errorf("%d calls for a budget of 300", n)
	}
	if letters := r.messages("WEIR_DEAD"); letters != jobs-300 {
		t.Errorf("%d letters over budget, want %d", letters, jobs-300)
	}
}

// TestRedisStopped: while Redis does not answer jobs are taken and no call is made; afterwards calls go on.
func TestRedisStopped(t *testing.T) {
	t.Parallel()
	r := newRedisRig(t, fakeapi.Options{KeepBody: 64}, redisYAML)
	r.submitMany(0, 100)
	r.awaitCalls(30)
	r.server.signal(freezes)
	r.eventually("a limiter that is down", func() bool { return !r.limiterUp() })
	held := len(r.api.All())
	r.submitMany(100, 100)
	if n := len(r.api.All()); n != held {
		t.Errorf("%d calls were made without a limiter", n-held)
	}
	r.server.signal(thaws)
	r.awaitCalls(200)
	r.eventually("a limiter that answers to be up", r.limiterUp)
	r.check(bucket.Rate{Count: 30, Per: time.Second, Burst: 1}, sharedRate("account", 100, 1), threeSeconds)
}

// TestRedisKilled: a Redis that dies and comes back empty holds calls, not jobs.
func TestRedisKilled(t *testing.T) {
	t.Parallel()
	r := newRedisRig(t, fakeapi.Options{KeepBody: 64}, redisYAML)
	r.submitMany(0, 100)
	r.awaitCalls(30)
	r.server.kill()
	r.eventually("a limiter that is down", func() bool { return !r.limiterUp() })
	r.submitMany(100, 100)
	r.server.start()
	r.awaitCalls(200)
	r.check(bucket.Rate{Count: 30, Per: time.Second, Burst: 1}, sharedRate("account", 100, 1), threeSeconds)
}

// TestRedisOverARestart: the worker stops and starts, and Redis is emptied in between: what was used is known.
func TestRedisOverARestart(t *testing.T) {
	t.Parallel()
	const jobs = 320
	r := newRedisRig(t, fakeapi.Options{KeepBody: 64}, redisYAML)
	client := r.server.client()
	r.submitMany(0, jobs)
	r.awaitCalls(60)
	r.stop()
	r.start()
	r.awaitCalls(160)
	r.stop()
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.eventually("an empty queue", func() bool { return r.waiting("pay") == 0 })
	r.check(bucket.Rate{Count: 30, Per: time.Second, Burst: 1}, sharedRate("account", 100, 1), threeSeconds)
	if n := len(r.api.All()); n != 300 {
		t.Errorf("%d calls for a budget of 300", n)
	}
}

// TestLimitsChangeHands: Redis counts, then the process, then Redis again; what was used stays used.
func TestLimitsChangeHands(t *testing.T) {
	t.Parallel()
	r := newRedisRig(t, fakeapi.Options{KeepBody: 64}, redisYAML)
	r.submitMany(0, 320)
	shared := r.redis
	for i, n := range []int{60, 130, 210} {
		r.awaitCalls(n)
		r.stop()
		if r.redis = shared; i%2 == 0 {
			r.redis = config.Secret{}
		}
		r.start()
	}
	r.eventually("an empty queue", func() bool { return r.waiting("pay") == 0 })
	r.check(bucket.Rate{Count: 30, Per: time.Second, Burst: 1}, sharedRate("account", 100, 1), threeSeconds)
	if n := len(r.api.All()); n != 300 {
		t.Errorf("%d calls for a budget of 300", n)
	}
}

// TestRedisKilledWorkers: the worker is killed again and again; Redis knows what its calls took.
func TestRedisKilledWorkers(t *testing.T) {
	server := startRedis(t)
	t.Setenv("WEIR_REDIS_URL", "redis://"+server.addr)
	const line = "idempotency: {header: Idempotency-Key}"
	restartUnderLoad(t, line, 5, (*process).kill).judge(line)
}

// TestRedisRefusals: what will not work is refused at the start, with the fix, and no password is shown.
func TestRedisRefusals(t *testing.T) {
	t.Parallel()
	evicting := startRedis(t, "--maxmemory-policy", "allkeys-lru")
	locked := startRedis(t)
	if err := locked.client().ConfigSet(t.Context(), "requirepass", "open-sesame").Err(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, url, want string }{
		{"evicting", "redis://" + evicting.addr, "maxmemory-policy noeviction"},
		{"wrong password", "redis://:hunter2@" + locked.addr, "WRONGPASS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := readyRig(t, fakeapi.Options{}, redisYAML)
			r.redis = redisSetting(t, c.url)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			w, err := worker.Start(ctx, r.settings(), testLog(t))
			if err == nil {
				w.Stop()
				t.Fatal("it started", await.Result(t, "the end of the worker", w.Wait))
			}
			if text := err.Error(); !strings.Contains(text, c.want) || strings.Contains(text, "hunter2") {
				t.Errorf("refused with: %s", text)
			}
		})
	}
}
