package bucket

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestTokenBucketVectors checks how much of a token bucket weir uses, and at which interval.
func TestTokenBucketVectors(t *testing.T) {
	for _, c := range []struct {
		rate     Rate
		jitter   time.Duration
		head     int64
		burst    int64
		interval Interval
	}{
		{Rate{2, time.Second, 40, ByTokens}, 5 * time.Millisecond, 0, 40, Interval{505_001, 1}},    // a hundredth of a call may be late
		{Rate{10, time.Second, 8, ByTokens}, 0, 0, 8, Interval{100_000, 1}},                        // all of the rate; counted by window it would be 3/s
		{Rate{10, time.Second, 40, ""}, 0, 0, 40, Interval{100_000, 1}},                            // a burst above the count means tokens
		{Rate{1000, time.Second, 1000, ByTokens}, 5 * time.Millisecond, 0, 995, Interval{1000, 1}}, // five calls may be late
		{Rate{1000, time.Second, 1, ByTokens}, 5 * time.Millisecond, 0, 1, Interval{6001, 1}},      // the bucket is too small to leave a part unused
		{Rate{100, time.Second, 100, ByTokens}, 0, 20, 80, Interval{12_500, 1}},                    // headroom lowers rate and burst
		{Rate{5000, time.Second, 10_000, ByTokens}, time.Millisecond, 0, 9994, Interval{200, 1}},   // slots are rounded: 1 µs more
		{Rate{1, time.Hour, 1, ByTokens}, 5 * time.Millisecond, 0, 1, Interval{3_600_005_001, 1}},  // only the jitter is added
		{Rate{10, time.Second, 10, ByWindow}, 0, 0, 10, Interval{1_000_000, 1}},                    // a window
		{Rate{10, time.Second, 3, ByTokens}, 500 * time.Millisecond, 50, 1, Interval{400_001, 1}},  // late calls and headroom leave little
	} {
		rules := Rules{Jitter: c.jitter, Headroom: c.head}
		if err := rules.validateRate(c.rate); err != nil {
			t.Fatal(err)
		}
		if burst, interval := rules.Burst(c.rate), rules.Interval(c.rate); burst != c.burst || interval != c.interval {
			t.Errorf("%+v, jitter %s, headroom %d: burst %d every %v, want %d every %v", c.rate, c.jitter, c.head, burst, interval, c.burst, c.interval)
		}
	}
}

// TestTokenBucketIsNeverExceeded makes calls of all costs as soon as they may start, each late by up to the jitter. No
// span of time may see more than what was in the api's bucket and what came in. If the part for late calls were used,
// some span would.
func TestTokenBucketIsNeverExceeded(t *testing.T) {
	exceeded := 0
	rapid.Check(t, func(t *rapid.T) {
		rate := anyRate(t)
		rate.Counts = ByTokens
		rules := Rules{
			Jitter:   time.Duration(rapid.Int64Range(0, 100_000).Draw(t, "jitter µs")) * time.Microsecond,
			Headroom: rapid.SampledFrom([]int64{0, 0, 1, 10, 60}).Draw(t, "headroom"),
		}
		if rules.validateRate(rate) != nil || rate.Burst > 1000 {
			t.Skip("a rate nobody can keep, or too long a story")
		}
		costs := rapid.SliceOfN(rapid.OneOf(rapid.Just(int64(1)), rapid.Int64Range(1, rate.Burst), rapid.Just(rate.Burst)), 1, 40).Draw(t, "costs")
		delays := rapid.SliceOfN(rapid.SampledFrom([]int64{0, 1, 1, 1, 2, 3}), 7, 7).Draw(t, "late by thirds")
		idle := rapid.SampledFrom([]int64{0, 0, 3, 50}).Draw(t, "idle")
		run := func(interval Interval, burst int64) Verdict {
			var g gcra
			now := t0
			var a []Arrival
			for i, cost := range costs {
				now = g.slot(now, interval, burst, cost)
				g.take(now, interval, cost)
				a = append(a, Arrival{At: int64(now)*1000 + int64(rules.Jitter)*delays[i%len(delays)]/3, Cost: cost})
				if i%5 == 4 {
					now += Micros(idle * (interval.P/interval.Q + 1))
				}
			}
			return Check(a, Expectation{Limit: Limit{Rate: &rate}, Jitter: time.Hour})
		}
		if v := run(rules.Interval(rate), rules.Burst(rate)); v.Outcome != Pass {
			t.Fatalf("%+v under %+v with burst %d every %v: %v", rate, rules, rules.Burst(rate), rules.Interval(rate), v)
		}
		if v := run(Interval{P: ceilMicros(rate.Per), Q: rate.Count}, rate.Burst); v.Outcome != Pass {
			exceeded++
		}
	})
	if exceeded == 0 {
		t.Error("the bucket's own rate and size were never too much either: the test shows nothing")
	}
}

// TestTokenBucketIsUsed checks that after a pause all of the used part of the bucket leaves at once, and then as much
// as comes in.
func TestTokenBucketIsUsed(t *testing.T) {
	for _, rate := range []Rate{{2, time.Second, 40, ByTokens}, {10, time.Second, 8, ByTokens}, {1000, time.Second, 1000, ByTokens}} {
		rules := Rules{Jitter: 5 * time.Millisecond}
		burst, interval := rules.Burst(rate), rules.Interval(rate)
		var g gcra
		at, n := t0, int64(0)
		for ; n < burst; n++ {
			at = g.slot(t0, interval, burst, 1)
			g.take(at, interval, 1)
		}
		if at != t0 || float64(burst) < 0.99*float64(rate.Burst)-1 {
			t.Errorf("%+v: %d calls leave until %d µs", rate, n, at-t0)
		}
		if got, want := interval.PerSecond(), float64(rate.Count)/rate.Per.Seconds(); got < 0.95*want || got > want*(1+1e-9) {
			t.Errorf("%+v: %.3f calls a second of %.3f", rate, got, want)
		}
	}
}

// TestCheckOfTokenBucket checks that Check judges by how the api counts. In any time a token bucket allows what was in
// the bucket and what came in, and jitter allows no more. A window allows its count.
func TestCheckOfTokenBucket(t *testing.T) {
	tokens := func(count, burst int64) Limit { return Limit{Rate: &Rate{count, time.Second, burst, ByTokens}} }
	eight := append(at(0, 0, 0, 0, 0, 0, 0, 0), spread(20, 100*ms, 100*ms)...)
	early := append(at(0, 0, 0, 0, 0, 0, 0, 0), spread(20, 95*ms, 100*ms)...)
	for name, c := range map[string]struct {
		a     []Arrival
		claim Expectation
		want  Outcome
		burst float64
	}{
		"a bucket of eight, ten a second":        {eight, Expectation{Limit: tokens(10, 8)}, Pass, 8},
		"is too much for a window":               {eight, Expectation{Limit: rateOf(10, time.Second, 8)}, Fail, 8},
		"one call early, which no jitter blurs":  {early, Expectation{Limit: tokens(10, 8), Jitter: 5 * time.Millisecond}, Fail, 8.05},
		"unless the stamps are no better":        {early, Expectation{Limit: tokens(10, 8), Eps: 5 * time.Millisecond}, Inconclusive, 8.05},
		"a bucket above the count, as it says":   {at(0, 0, 0, 100*ms), Expectation{Limit: Limit{Rate: &Rate{2, time.Second, 4, ""}}}, Pass, 3.8},
		"a bucket above the count, said or not":  {at(0, 0, 0, 0, 0), Expectation{Limit: Limit{Rate: &Rate{2, time.Second, 4, ""}}, Jitter: time.Hour}, Fail, 5},
		"one call as large as the bucket":        {[]Arrival{{At: 0, Cost: 8}, {At: 800 * ms, Cost: 8}}, Expectation{Limit: tokens(10, 8)}, Pass, 8},
		"one call as large as the bucket, early": {[]Arrival{{At: 0, Cost: 8}, {At: 799 * ms, Cost: 8}}, Expectation{Limit: tokens(10, 8)}, Fail, 8.01},
	} {
		v := Check(c.a, c.claim)
		if v.Outcome != c.want || v.Burst < c.burst-1e-9 || v.Burst > c.burst+1e-9 {
			t.Errorf("%s: %v", name, v)
		}
		if c.claim.Eps > 0 {
			continue
		}
		one := NewChecking(c.claim)
		for _, x := range c.a {
			one.Add(x)
		}
		if got := one.Verdict(); got != v {
			t.Errorf("%s: one by one %+v, all at once %+v", name, got, v)
		}
	}
}

// TestCountsIsValidated checks that a burst that fits into no window is refused, and that the error names the way of
// counting that allows it.
func TestCountsIsValidated(t *testing.T) {
	for rate, want := range map[Rate]bool{
		{10, time.Second, 10, ByWindow}: true, {10, time.Second, 11, ByWindow}: false, {10, time.Second, 11, ByTokens}: true,
		{10, time.Second, 11, ""}: true, {10, time.Second, 1, ByTokens}: true, {10, time.Second, 1, "calls"}: false,
	} {
		if err := rate.Validate(); (err == nil) != want {
			t.Errorf("%+v: %v", rate, err)
		}
	}
	if got := fmt.Sprint(Rate{10, time.Second, 11, ByWindow}.Validate()); got == "" || !strings.Contains(got, "token_bucket") {
		t.Errorf("refused with %q", got)
	}
}
