package soak

import (
	"fmt"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/referee"
)

// TestRedisLimitsFollowed applies other limits while calls run through a real Redis. A raised limit helps at once, a
// lowered one binds at once, one that only watches delays nothing, and no window holds more than the rules of its time.
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
	r := weirtest.NewRedisRig(t, fakeapi.Options{KeepBody: 64}, fmt.Sprintf(yaml, "60/s", 400, false))
	const jobs = 2500 // more than are called while a busy machine runs the commands
	r.SubmitMany(0, jobs)
	r.AwaitCalls(60)
	_, first, slow := r.ApplyCommand(fmt.Sprintf(yaml, "150/s", 400, false))
	r.AwaitCalls(first + 200)
	by, second, _ := r.ApplyCommand(fmt.Sprintf(yaml, "20/s", 400, false))
	r.AwaitCalls(second + 30)
	until := int64(time.Since(r.API.Started()))
	r.ApplyCommand(fmt.Sprintf(yaml, "150/s", 30, true)) // a quota that would hold nearly all
	arrivals := r.AwaitCalls(jobs)
	if n := len(arrivals); n != jobs {
		t.Errorf("%d calls of %d jobs", n, jobs)
	}

	all := func(int64) bool { return true }
	r.Referee().CheckStamps("60/s", referee.StampsOf(arrivals[:slow], all), referee.EverySecond(60))
	r.Referee().CheckStamps("all", referee.StampsOf(arrivals, all), referee.EverySecond(150))
	r.Referee().CheckStamps("20/s", referee.StampsOf(arrivals, func(at int64) bool { return at > by && at < until }), referee.EverySecond(20))
	r.Referee().CheckStamps("three", referee.StampsOf(arrivals[:second+30], all),
		bucket.Limit{Name: "three", Quota: &bucket.Quota{Count: 400, Window: bucket.Sliding, Per: 3 * time.Second}})
	r.Referee().Used(arrivals[first:first+200], 100, 150, 2.0/3)
	r.Referee().Used(arrivals[second+30:], 100, 150, 2.0/3)
	for _, key := range fakeapi.KeysOf(arrivals) {
		r.Referee().CheckOrder(fakeapi.OfKey(arrivals, key))
	}
}
