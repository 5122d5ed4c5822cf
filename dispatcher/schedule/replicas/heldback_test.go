package replicas

import (
	"fmt"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/internal/seeds"
	"weir/dispatcher/schedule"
)

// TestSlowedReplicasHoldNoOther checks that a replica gets what five others leave of a limit, because pushback has
// slowed them.
func TestSlowedReplicasHoldNoOther(t *testing.T) {
	for seed := range seeds.Of(20) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			f := newFleet(t, seed)
			f.rules.Shared[0].Rate.Count = 200
			c := crew{replicas: 6, jobs: 200}
			for i := range 60 {
				c.keys = append(c.keys, fleetKey{name: fmt.Sprint("k", i), replica: i % 6})
			}
			f.man(c)
			for _, r := range f.replicas[1:] {
				r.s.Policy().Retry.Adaptive = &schedule.Adaptive{Floor: 1, Recover: 1000 * time.Hour}
				r.s.Findings.Learn(schedule.Finding{At: f.local(r), Share: 1 << 10 / 16}, f.local(r)) // a sixteenth
			}
			begin, end := f.now.Add(time.Second), f.now.Add(8*time.Second)
			f.run(end)
			calls := map[bool]int{}
			for _, g := range f.grants {
				if g.at >= begin && g.at < end {
					calls[f.keys[g.key].replica > 0]++
				}
			}
			allowed := int(begin.Until(end) / f.rules.Interval(*f.rules.Shared[0].Rate).Duration())
			if n := calls[true] + calls[false]; n < allowed*99/100 || calls[true] < 300 {
				t.Errorf("the slowed replicas made %d calls, the other %d, and the limit allows %d", calls[true], calls[false], allowed)
			}
		})
	}
}

// TestDearCallStaysReady checks that a replica keeps a dear call ready while the cheap calls of another replica come
// first: each time that a job is made ready, its intent is stored.
func TestDearCallStaysReady(t *testing.T) {
	f := newFleet(t, 1)
	f.rules.TenantUntil, f.costs = "", map[string]int64{"dear": 100}
	f.rules.Shared[0].Rate = &bucket.Rate{Count: 120, Per: time.Second, Burst: 100}
	c := crew{replicas: 2, jobs: 60}
	for i, key := range []string{"dear", "a", "b", "c", "d", "e", "f", "g"} {
		c.keys = append(c.keys, fleetKey{name: key, replica: min(1, i)})
	}
	f.man(c)
	f.run(f.now.Add(20 * time.Second))
	granted := c.jobs - f.keys["dear"].left
	if granted < 2 || f.loads["dear"] > granted+3 {
		t.Errorf("jobs were made ready %d times for %d dear calls", f.loads["dear"], granted)
	}
}
