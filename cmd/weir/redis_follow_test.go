package main

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
)

// applyCommand runs `weir config apply` and waits until the worker runs by what it applied. It returns the api's time by
// then, and how many calls had been made by then and before the command.
func (r *rig) applyCommand(yaml string) (by int64, calls, before int) {
	r.t.Helper()
	file := filepath.Join(r.t.TempDir(), "new.yaml")
	writeFile(r.t, file, fmt.Sprintf(yaml, r.api.URL()))
	version := r.worker.ConfigState().Version
	before = len(r.api.All())
	r.must("config", "apply", "-f", file, "--yes")
	r.eventually("the configuration to be followed", func() bool { return r.worker.ConfigState().Version > version })
	return int64(time.Since(r.api.Started())), len(r.api.All()), before
}

// TestRedisLimitsFollowed applies other limits while calls run through a real Redis: a raised limit helps at once, a lowered
// one binds at once, one that is made to watch holds nothing, and no window sees more than the rules of its time.
func TestRedisLimitsFollowed(t *testing.T) {
	t.Parallel()
	const yaml = `
apis:
  pay:
    url: %%s
    idempotency: {header: Idempotency-Key}
    jitter: 20ms
    bucket: {rate: 100/s, capacity: 5000, in_flight: 8}
    limits:
      - {name: account, rate: %s}
      - {name: three, quota: %d/3s, window: sliding, shadow: %v}
`
	r := newRedisRig(t, fakeapi.Options{KeepBody: 64}, fmt.Sprintf(yaml, "60/s", 400, false))
	const jobs = 2500 // more than are called while a busy machine runs the commands
	r.submitMany(0, jobs)
	r.awaitCalls(60)
	_, first, slow := r.applyCommand(fmt.Sprintf(yaml, "150/s", 400, false))
	r.awaitCalls(first + 200)
	by, second, _ := r.applyCommand(fmt.Sprintf(yaml, "20/s", 400, false))
	r.awaitCalls(second + 30)
	until := int64(time.Since(r.api.Started()))
	r.applyCommand(fmt.Sprintf(yaml, "150/s", 30, true)) // a quota that would hold nearly all
	arrivals := r.awaitCalls(jobs)
	if n := len(arrivals); n != jobs {
		t.Errorf("%d calls of %d jobs", n, jobs)
	}

	all := func(int64) bool { return true }
	r.checkStamps("60/s", stampsOf(arrivals[:slow], all), everySecond(60))
	r.checkStamps("all", stampsOf(arrivals, all), everySecond(150))
	r.checkStamps("20/s", stampsOf(arrivals, func(at int64) bool { return at > by && at < until }), everySecond(20))
	r.checkStamps("three", stampsOf(arrivals[:second+30], all),
		bucket.Limit{Name: "three", Quota: &bucket.Quota{Count: 400, Window: bucket.Sliding, Per: 3 * time.Second}})
	r.referee().used(arrivals[first:first+200], 100, 150, 2.0/3)
	r.referee().used(arrivals[second+30:], 100, 150, 2.0/3)
	for _, key := range fakeapi.KeysOf(arrivals) {
		r.checkOrder(fakeapi.OfKey(arrivals, key))
	}
}
