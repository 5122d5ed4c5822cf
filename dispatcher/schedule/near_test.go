package schedule

import (
	"testing"
)

// TestNobodyWaitsForWhoWaitsForRoom checks that a job that waits for memory gets it in the end, although jobs
// behind it hold the memory. Behind a retry, these jobs are called before it. Behind a job that was never called
// they must not be: they give their memory back.
func TestNobodyWaitsForWhoWaitsForRoom(t *testing.T) {
	for _, calls := range []int{0, 1} {
		limits := fast(8)
		limits.Rate.Burst = 8
		d := newDesk(limits)
		d.add("k", "k", "k")
		q := d.byKey["k"]
		first, others := d.Extract(q, 1), []*Job{d.Extract(q, 2), d.Extract(q, 3)}
		first.Calls, first.Phase, first.Cramped = calls, staging, true
		for _, j := range others {
			j.Phase, j.Policy = ready, d.policy
		}
		d.Pipe.staged += 3
		fx := d.Step(d.now)
		switch {
		case calls > 0 && (len(fx.Asks) != 1 || len(fx.asked[0]) != 2 || len(fx.Stale) != 0):
			t.Errorf("behind a retry: %d asks, and %d jobs give their room back", len(fx.Asks), len(fx.Stale))
		case calls == 0 && (len(fx.Asks) != 0 || len(fx.Stale) != 2):
			t.Errorf("behind a first call: %d asks, and %d jobs give their room back", len(fx.Asks), len(fx.Stale))
		}
	}
}
