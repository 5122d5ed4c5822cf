package storetest

import (
	"fmt"
	"testing"
	"time"

	"weir/bucket"
	"weir/ingest"

	"pgregory.net/rapid"
)

// schedules drives the store with random limits and random callers, and checks every arrival against every limit. It
// finds mistakes of the arithmetic, and also a store that is safe only because it grants too little.
func schedules(t *testing.T, open Open, scenes int) {
	for _, c := range []struct {
		name string
		plan func(*rapid.T) plan
		hold []check
	}{
		{"never over", anyPlan, []check{(*scene).neverOver}},
		{"never over by returns", returnsPlan, []check{(*scene).neverOver}},
		{"never over by refunds", refundsPlan, []check{(*scene).neverOver}},
		{"never over after overages", overagesPlan, []check{(*scene).afterOverages}},
		{"never idle", busyPlan, []check{(*scene).neverOver, (*scene).neverIdle}},
		{"never over under changing rules", turningPlan, []check{(*scene).neverOverInForce}},
		{"never idle under changing rules", busyTurningPlan, []check{(*scene).neverOverInForce, (*scene).neverIdleInForce}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for left := scenes; left > 0; left -= 100 { // rapid plays a hundred at a time
				played := 0
				rapid.Check(t, func(rt *rapid.T) {
					if played++; played > left && !rt.Failed() {
						return
					}
					s := newScene(t, open, c.plan(rt), rapid.Uint64().Draw(rt, "seed"))
					s.play()
					for _, check := range c.hold {
						check(s, rt.Fatalf)
					}
				})
			}
		})
	}
}

// check examines a scene that has been played, and calls fail with what is wrong.
type check = func(s *scene, fail func(string, ...any))

// plan describes what a scene plays.
type plan struct {
	rules   bucket.Rules
	keys    int
	costs   []int64 // the most a call takes from each shared limit
	want    int
	horizon time.Duration
	service time.Duration // how long a call takes at most
	length  time.Duration
	adverse adversity
	turns   []turn // changes of rules, in order
	// replicas is the number of processes that take turns, among which the keys are divided; 0 if one process has all
	// keys.
	replicas int
	// frank says that a replica's Line names only keys that ask now, or that wait for a shared limit.
	frank bool
	// prioritized says that the jobs of different keys have different priorities.
	prioritized bool
}

// adversity is what can go wrong, in percent of the occasions.
type adversity struct {
	pauses, misses, unsettled, misestimates, overages, clockBack, reports int
	eager                                                                 int // ask again at once after a grant
}

func anyPlan(t *rapid.T) plan {
	p := plan{
		keys:    rapid.IntRange(1, 4).Draw(t, "keys"),
		want:    rapid.IntRange(1, 5).Draw(t, "want"),
		horizon: time.Duration(rapid.SampledFrom([]int{0, 1, 20, 500}).Draw(t, "horizon ms")) * time.Millisecond,
		service: time.Duration(rapid.SampledFrom([]int{0, 5, 300}).Draw(t, "service ms")) * time.Millisecond,
	}
	p.replicas = rapid.SampledFrom([]int{0, 0, 1, 2, 3}).Draw(t, "replicas")
	p.prioritized = rapid.Bool().Draw(t, "prioritized")
	p.rules = bucket.Rules{
		Key:      bucket.KeyLimits{Rate: anyRate(t, "key")},
		Jitter:   time.Duration(rapid.SampledFrom([]int{0, 1, 5}).Draw(t, "jitter ms")) * time.Millisecond,
		Headroom: rapid.SampledFrom([]int64{0, 0, 7, 50}).Draw(t, "headroom"),
	}
	longest := span(p.rules.Key.Rate)
	for i := range rapid.IntRange(0, 3).Draw(t, "limits") {
		l := anyLimit(t, fmt.Sprint("limit", i))
		l.Shadow = rapid.IntRange(0, 7).Draw(t, "shadow") == 7
		if l.InFlight == 0 && rapid.IntRange(0, 2).Draw(t, "left") == 0 {
			l = reading(l)
		}
		p.rules.Shared = append(p.rules.Shared, l)
		cost := int64(1)
		switch {
		case l.Rate != nil:
			cost = rapid.Int64Range(1, l.Rate.Burst).Draw(t, "cost")
			longest = max(longest, span(*l.Rate))
		case l.Quota != nil:
			cost = rapid.Int64Range(1, max(1, min(5, l.Quota.Count*(100-p.rules.Headroom)/100))).Draw(t, "cost")
			if l.Quota.Window != bucket.Calendar {
				longest = max(longest, l.Quota.Per)
			}
		}
		p.costs = append(p.costs, cost)
	}
	p.length = min(4*longest, 3*time.Hour)
	if rapid.Bool().Draw(t, "adverse") {
		p.adverse = adversity{
			pauses:       rapid.IntRange(0, 5).Draw(t, "pauses"),
			misses:       rapid.IntRange(0, 30).Draw(t, "misses"),
			unsettled:    rapid.IntRange(0, 10).Draw(t, "unsettled"),
			misestimates: rapid.IntRange(0, 50).Draw(t, "misestimates"),
			reports:      rapid.IntRange(0, 50).Draw(t, "reports"),
		}
		if !hasPeriods(p.rules.Shared) { // by a wrong clock the store's periods would be wrong too
			p.adverse.clockBack = rapid.IntRange(0, 3).Draw(t, "clock back")
		}
	}
	return p
}

// busyPlan has no adversity, and jobs are always waiting. Under shared limits slots are taken when they are due. A slot
// taken ahead would keep the shared limits idle for other keys until then, which is safe but not full use. A turn that
// is kept for a key that does not ask would do the same, so the plan is frank.
func busyPlan(t *rapid.T) plan {
	p := anyPlan(t)
	p.adverse, p.frank = adversity{}, true
	if len(p.rules.Shared) > 0 {
		p.horizon = 0
	}
	p.rules.Shared = withOneQuotaAtMost(p.rules.Shared)
	return p
}

// returnsPlan takes several slots ahead, with one ask or several, and returns many of them.
func returnsPlan(t *rapid.T) plan {
	r := bucket.Rate{Count: rapid.Int64Range(20, 200).Draw(t, "count"), Per: time.Second, Burst: rapid.Int64Range(1, 5).Draw(t, "burst")}
	p := plan{
		rules: bucket.Rules{Key: bucket.KeyLimits{Rate: r}}, keys: rapid.IntRange(1, 3).Draw(t, "keys"),
		want: rapid.IntRange(1, 6).Draw(t, "want"), horizon: 500 * time.Millisecond, length: 4 * time.Second,
		adverse: adversity{
			misses: rapid.IntRange(5, 60).Draw(t, "misses"), pauses: rapid.IntRange(0, 2).Draw(t, "pauses"),
			eager: rapid.IntRange(0, 90).Draw(t, "eager"),
		},
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "limits") {
		p.rules.Shared = append(p.rules.Shared, anyLimit(t, fmt.Sprint("limit", i)))
		p.costs = append(p.costs, 1)
	}
	return p
}

// refundsPlan has limits that settle, and calls that end late and cost less than estimated.
func refundsPlan(t *rapid.T) plan {
	p := plan{
		rules: bucket.Rules{Key: fast}, keys: rapid.IntRange(1, 3).Draw(t, "keys"), want: rapid.IntRange(1, 3).Draw(t, "want"),
		horizon: time.Duration(rapid.SampledFrom([]int{0, 50}).Draw(t, "horizon ms")) * time.Millisecond,
		service: time.Duration(rapid.SampledFrom([]int{0, 100, 1000, 4000}).Draw(t, "service ms")) * time.Millisecond, length: 10 * time.Second,
		adverse: adversity{misestimates: 70, pauses: rapid.IntRange(0, 30).Draw(t, "pauses"), misses: rapid.IntRange(0, 10).Draw(t, "misses")},
	}
	for i := range rapid.IntRange(1, 2).Draw(t, "limits") {
		name := fmt.Sprint("limit", i)
		if rapid.IntRange(0, 2).Draw(t, name) == 0 { // calls may outlive its window
			count := rapid.Int64Range(10, 60).Draw(t, "count")
			p.rules.Shared = append(p.rules.Shared, quota(name, bucket.Quota{Count: count, Window: bucket.Sliding, Per: time.Second}))
			p.costs = append(p.costs, count/2)
			continue
		}
		r := bucket.Rate{Count: rapid.Int64Range(100, 400).Draw(t, "count"), Per: time.Second, Burst: rapid.Int64Range(10, 60).Draw(t, "burst")}
		p.rules.Shared = append(p.rules.Shared, bucket.Limit{Name: name, Rate: &r, Cost: ingest.Cost(nil).SettledBy(ingest.Source{Header: "X"})})
		p.costs = append(p.costs, r.Burst)
	}
	return p
}

// overagesPlan is refundsPlan with calls that also cost up to three times their estimate.
func overagesPlan(t *rapid.T) plan {
	p := refundsPlan(t)
	p.adverse.overages = rapid.IntRange(5, 50).Draw(t, "overages")
	return p
}

// span returns how long a rate must be used to show what it allows: one period, and twice the time to drain its burst.
func span(r bucket.Rate) time.Duration {
	return r.Per + 2*time.Duration(r.Burst)*r.Per/time.Duration(r.Count)
}

func anyRate(t *rapid.T, name string) bucket.Rate {
	r := bucket.Rate{
		Count: rapid.OneOf(rapid.Int64Range(1, 9), rapid.Int64Range(1, 3000)).Draw(t, name+" count"),
		Per:   time.Duration(rapid.SampledFrom([]int{1, 1, 7, 60}).Draw(t, name+" seconds")) * time.Second,
	}
	r.Burst = rapid.OneOf(rapid.Just(int64(1)), rapid.Int64Range(1, max(1, r.Count/2)), rapid.Int64Range(1, 40)).Draw(t, name+" burst")
	r.Counts = rapid.SampledFrom([]bucket.Counting{"", "", bucket.ByTokens}).Draw(t, name+" counts")
	return r
}

func anyLimit(t *rapid.T, name string) bucket.Limit {
	count := rapid.OneOf(rapid.Int64Range(5, 40), rapid.Int64Range(5, 3000)).Draw(t, name+" quota")
	per := time.Duration(rapid.SampledFrom([]int{2, 30}).Draw(t, name+" seconds")) * time.Second
	switch rapid.SampledFrom([]string{"rate", "rate", "settled", "sliding", "fixed", "calendar", "in flight"}).Draw(t, name) {
	case "sliding":
		return quota(name, bucket.Quota{Count: count, Window: bucket.Sliding, Per: per})
	case "fixed":
		return quota(name, bucket.Quota{Count: count, Window: bucket.Fixed, Per: per})
	case "calendar":
		return quota(name, bucket.Quota{Count: count, Window: bucket.Calendar, Unit: bucket.Hour, Zone: time.UTC})
	case "in flight":
		return bucket.Limit{Name: name, InFlight: rapid.Int64Range(1, 5).Draw(t, name+" in flight")}
	case "settled":
		r := anyRate(t, name)
		return bucket.Limit{Name: name, Rate: &r, Cost: ingest.Cost(nil).SettledBy(ingest.Source{Header: "X"})}
	default:
		r := anyRate(t, name)
		return bucket.Limit{Name: name, Rate: &r}
	}
}

func hasPeriods(limits []bucket.Limit) bool {
	for _, l := range limits {
		if l.Quota != nil && l.Quota.Window != bucket.Sliding {
			return true
		}
	}
	return false
}

// withOneQuotaAtMost replaces all quotas but one by a limit that never binds. Two quotas that stall at different times
// together allow less than either, and no formula says how much less. It replaces limits of calls in flight too,
// because the wait for a permit depends on the service time.
func withOneQuotaAtMost(limits []bucket.Limit) []bucket.Limit {
	quotas := 0
	for i, l := range limits {
		if l.Quota != nil {
			quotas++
		}
		if l.InFlight > 0 || l.Quota != nil && quotas > 1 {
			limits[i] = bucket.Limit{Name: l.Name, InFlight: 1 << 20}
		}
	}
	return limits
}
