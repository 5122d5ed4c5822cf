package limits

import (
	"fmt"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/referee"
)

// TestSharedLimitsOverARestart: every kind of limit holds on the arrivals, also over a stop in the middle.
func TestSharedLimitsOverARestart(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, `
apis:
  pay:
    url: %s
    price: 0.50
    jitter: 20ms
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 100/s, capacity: 500}
    limits:
      - {name: account, rate: 60/s}
      - {name: three, quota: 80/3s, window: sliding}
      - {name: spend, budget: 60.00/day, tz: `+machine.Noon()+`, on_exhausted: dead_letter}
`)
	for i := range 150 {
		key := fmt.Sprintf("k%d", i%7)
		r.Producer().Submit("weir.jobs.pay."+key, nil, map[string]string{"Weir-Path": "/" + key})
	}
	r.AwaitCalls(40)
	r.Stop()
	r.Start()
	r.Eventually("an empty queue", func() bool { return r.Store().Waiting("pay") == 0 })
	arrivals := r.API.All()
	r.Referee().CheckRate(arrivals, bucket.Rate{Count: 60, Per: time.Second, Burst: 1})
	three := bucket.Limit{Name: "three", Quota: &bucket.Quota{Count: 80, Window: bucket.Sliding, Per: 3 * time.Second}}
	r.Referee().Hold("calls", referee.Stamped(arrivals), three, 20*time.Millisecond)
	r.CheckStarts(referee.SharedRate("account", 60, 1), three)
	// 60.00 buys 120 calls; an orderly stop wastes none of them.
	if len(arrivals) != 120 {
		t.Errorf("%d calls for a budget of 120", len(arrivals))
	}
	if letters := r.Store().Messages("WEIR_DEAD"); letters != 30 {
		t.Errorf("%d letters over budget, want 30", letters)
	}
}
