package dispatcher

import (
	"testing"
)

// TestNobodyWaitsForWhoWaitsForRoom: a job that waits for room in memory gets it in the end, although jobs behind it, which are called
// after it, have the room. Behind a retry they are called before it. Behind a job that was never called they may not be: they give
// their room back.
func TestNobodyWaitsForWhoWaitsForRoom(t *testing.T) {
	for _, calls := range []int{0, 1} {
		limits := fast(8)
		limits.Rate.Burst = 8
		d := newDesk(limits)
		d.add("k", "k", "k")
		line := d.lines["k"]
		first, others := line.extract(1), []*task{line.extract(2), line.extract(3)}
		first.calls, first.phase, first.cramped = calls, staging, true
		for _, x := range others {
			x.phase, x.policy = ready, d.policy
		}
		d.staged += 3
		fx := d.step(d.now)
		switch {
		case calls > 0 && (len(fx.asks) != 1 || len(fx.asked[0]) != 2 || len(fx.stale) != 0):
			t.Errorf("behind a retry: %d asks, and %d jobs give their room back", len(fx.asks), len(fx.stale))
		case calls == 0 && (len(fx.asks) != 0 || len(fx.stale) != 2):
			t.Errorf("behind a first call: %d asks, and %d jobs give their room back", len(fx.asks), len(fx.stale))
		}
	}
}
