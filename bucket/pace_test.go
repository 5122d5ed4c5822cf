package bucket

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestIntervalOfTheWorkedExamples compares the intervals with the figures computed by enumeration.
func TestIntervalOfTheWorkedExamples(t *testing.T) {
	for _, c := range []struct {
		name   string
		rate   Rate
		jitter time.Duration
		head   int64
		want   Interval
	}{
		{"100/s burst 10 jitter 50ms", Rate{100, time.Second, 10, ""}, 50 * time.Millisecond, 0, Interval{11539, 1}},
		{"100/s burst 1 jitter 50ms", Rate{100, time.Second, 1, ""}, 50 * time.Millisecond, 0, Interval{10500, 1}},
		{"60/min burst 5 jitter 100ms", Rate{60, time.Minute, 5, ""}, 100 * time.Millisecond, 0, Interval{1073215, 1}},
		{"1000/s burst 100 jitter 2ms", Rate{1000, time.Second, 100, ""}, 2 * time.Millisecond, 0, Interval{1113, 1}},
		{"burst as large as the count", Rate{10, time.Second, 10, ""}, 0, 0, Interval{1000000, 1}},
		{"burst above the count", Rate{10, time.Second, 40, ""}, 0, 0, Interval{100000, 1}},
		{"half a call a day", Rate{1, 48 * time.Hour, 1, ""}, 0, 0, Interval{172800000000, 1}},
		{"a million a second", Rate{1000000, time.Second, 1, ""}, 0, 0, Interval{1000001, 1000000}},
		{"7/s", Rate{7, time.Second, 1, ""}, 0, 0, Interval{142858, 1}},
		{"headroom takes whole calls", Rate{100, time.Second, 1, ""}, 0, 10, Interval{11112, 1}},
		{"headroom of a single call widens", Rate{1, time.Second, 1, ""}, 0, 10, Interval{1111112, 1}},
		{"headroom below the burst widens", Rate{10, time.Second, 8, ""}, 0, 30, Interval{1428572, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Rules{Jitter: c.jitter, Headroom: c.head}.Interval(c.rate)
			if got != c.want {
				t.Errorf("interval %v µs, want %v", got, c.want)
			}
		})
	}
}

// TestTheWorstWindow counts what can arrive in one window if a burst is late and the other calls are not. With the
// obvious interval Per/Count that is too much. With weir's interval it is exactly what is allowed.
func TestTheWorstWindow(t *testing.T) {
	for _, c := range []struct {
		name         string
		rate         Rate
		jitter       time.Duration
		naive, exact int64
	}{
		{"100/s burst 10", Rate{100, time.Second, 10, ""}, 50 * time.Millisecond, 114, 100},
		{"100/s burst 1", Rate{100, time.Second, 1, ""}, 50 * time.Millisecond, 105, 100},
		{"60/min burst 5", Rate{60, time.Minute, 5, ""}, 100 * time.Millisecond, 65, 60},
		{"1000/s burst 100", Rate{1000, time.Second, 100, ""}, 2 * time.Millisecond, 1101, 1000},
	} {
		rules := Rules{Jitter: c.jitter}
		if err := rules.validateRate(c.rate); err != nil {
			t.Fatal(err)
		}
		worst := func(interval Interval) int64 {
			var g gcra
			arrivals := make([]Arrival, 3*c.rate.Count)
			for i := range arrivals {
				at := g.slot(t0, interval, c.rate.Burst, 1)
				g.take(at, interval, 1)
				if arrivals[i].At = int64(at) * 1000; at < t0.Add(c.jitter) {
					// The call arrives late, as every call may until the first window begins.
					arrivals[i].At = int64(t0.Add(c.jitter)) * 1000
				}
			}
			return Check(arrivals, Expectation{Limit: rateOf(c.rate.Count, c.rate.Per, c.rate.Burst), Jitter: c.jitter}).Worst
		}
		if got := worst(Interval{c.rate.Per.Microseconds() / c.rate.Count, 1}); got != c.naive {
			t.Errorf("%s: %d in a window at the obvious interval, want %d", c.name, got, c.naive)
		}
		if got := worst(rules.Interval(c.rate)); got != c.exact {
			t.Errorf("%s: %d in a window, want %d", c.name, got, c.exact)
		}
	}
}

// TestIntervalIsSafeAndTight checks the formula itself: n+1 calls never fit into a window, and the interval is not much
// wider than that needs.
func TestIntervalIsSafeAndTight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := anyRate(t)
		rules := Rules{
			Jitter:   time.Duration(rapid.Int64Range(0, 100_000).Draw(t, "jitter µs")) * time.Microsecond,
			Headroom: rapid.Int64Range(0, 99).Draw(t, "headroom"),
		}
		if rules.validateRate(rate) != nil {
			t.Skip("a rate nobody can keep")
		}
		iv := rules.Interval(rate)
		allowed := rate.Count * (100 - rules.Headroom) / 100
		allowed = max(allowed, min(rate.Burst, rate.Count))
		window := float64(ceilMicros(rate.Per) + ceilMicros(rules.Jitter))
		T := float64(iv.P) / float64(iv.Q)
		if rate.Burst <= rate.Count {
			if span := float64(allowed+1-rate.Burst) * T; span < window*(1-1e-12) {
				t.Fatalf("%d calls span %.3f µs of a window of %.0f", allowed+1, span, window)
			}
		}
		if rules.Headroom == 0 && T > 10*window/float64(max(1, allowed-rate.Burst))+2 && rate.Burst <= rate.Count && allowed > rate.Burst {
			t.Fatalf("interval %.3f µs is far wider than needed", T)
		}
		if iv.times(rate.Burst) > maxDebt || iv.P < 1 || iv.Q < 1 || iv.Q > maxQ {
			t.Fatalf("interval %v out of bounds", iv)
		}
		if iv.Q > 1 && float64(rate.Burst)*float64(iv.P) >= 1<<52 {
			t.Fatalf("burst %d times %d leaves the exact range", rate.Burst, iv.P)
		}
		more := rules
		more.Headroom = min(99, rules.Headroom+5)
		if w := more.Interval(rate); float64(w.P)/float64(w.Q) < T*(1-1e-9) {
			t.Fatalf("headroom %d%% gives a shorter interval than %d%%", more.Headroom, rules.Headroom)
		}
	})
}

func anyRate(t *rapid.T) Rate {
	units := []time.Duration{time.Second, time.Minute, 3 * time.Hour, 24 * time.Hour}
	r := Rate{
		Count: rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, 1_000_000)).Draw(t, "count"),
		Per:   rapid.SampledFrom(units).Draw(t, "per"),
	}
	r.Burst = rapid.OneOf(rapid.Just(int64(1)), rapid.Int64Range(1, min(50, r.Count)), rapid.Int64Range(1, 1000)).Draw(t, "burst")
	return r
}

// TestForecastIsWhatReserveGrants compares Forecast with the slots that Reserve grants.
func TestForecastIsWhatReserveGrants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := KeyLimits{Rate: anyRate(t)}
		rules := Rules{Key: limits, Jitter: time.Millisecond}
		if rules.Validate() != nil {
			t.Skip("a rate nobody can keep")
		}
		now := Micros(1_800_000_000_000_000)
		m, err := NewMemory(rules, func() Micros { return now })
		if err != nil {
			t.Fatal(err)
		}
		used := rapid.IntRange(0, 20).Draw(t, "used")
		reserveAll(t, m, limits, "k", used)
		now += Micros(rapid.Int64Range(0, 5_000_000).Draw(t, "pause"))
		tat, _ := m.TAT("k")
		n := rapid.IntRange(1, 40).Draw(t, "n")
		want := reserveAll(t, m, limits, "k", n)[n-1].At
		got := Forecast(limits, rules.Interval(limits.Rate), tat, now, n)
		if d := got - want; d < 0 || d > 1 { // a fraction of a TAT is rounded up
			t.Fatalf("forecast %d, granted %d", got, want)
		}
	})
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// reserveAll takes n slots of a key one by one, however far ahead.
func reserveAll(t fataler, m *Memory, limits KeyLimits, key string, n int) []Grant {
	t.Helper()
	var grants []Grant
	for range n {
		got, err := m.Reserve(context.Background(), []Ask{{Key: key, Limits: limits, Want: 1, Horizon: 100 * 365 * 24 * time.Hour}})
		if err != nil || len(got[0].Grants) != 1 {
			t.Fatalf("reserve: %v %v", got, err)
		}
		grants = append(grants, got[0].Grants[0])
	}
	return grants
}
