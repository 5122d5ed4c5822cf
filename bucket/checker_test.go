package bucket

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const ms = int64(time.Millisecond)

func at(times ...int64) (a []Arrival) {
	for _, t := range times {
		a = append(a, Arrival{At: t})
	}
	return a
}

func spread(n int, first, gap int64) (a []Arrival) {
	for i := range n {
		a = append(a, Arrival{At: first + int64(i)*gap})
	}
	return a
}

func rateOf(count int64, per time.Duration, burst int64) Limit {
	return Limit{Rate: &Rate{count, per, burst, ""}}
}

func sliding(count int64, per time.Duration) Limit {
	return Limit{Quota: &Quota{Count: count, Window: Sliding, Per: per}}
}

func fixed(count int64, per time.Duration) Limit {
	return Limit{Quota: &Quota{Count: count, Window: Fixed, Per: per}}
}

func TestCheckVectors(t *testing.T) {
	minute := int64(time.Minute)
	edge := append(spread(100, minute-30*1000*ms, 300*ms), spread(100, minute, 200*ms)...)
	for _, c := range []struct {
		name  string
		a     []Arrival
		claim Expectation
		want  Outcome
		worst int64
		burst float64
	}{
		{"virtual queue", at(0, 0, 0, 100*ms, 200*ms, 300*ms), Expectation{Limit: rateOf(10, time.Second, 3)}, Pass, 6, 3},
		{"virtual queue, one too many", at(0, 0, 0, 100*ms, 200*ms, 300*ms), Expectation{Limit: rateOf(10, time.Second, 2)}, Fail, 6, 3},
		{"jitter blurs a burst", at(0, 100*ms, 195*ms), Expectation{Limit: rateOf(10, time.Second, 1), Jitter: 5 * time.Millisecond}, Pass, 3, 1.05},
		{"stamps in doubt", at(0, 100*ms, 195*ms), Expectation{Limit: rateOf(10, time.Second, 1), Eps: 5 * time.Millisecond}, Inconclusive, 3, 1.05},
		{"edge burst of a fixed window, told sliding", edge, Expectation{Limit: sliding(100, time.Minute)}, Fail, 200, 0},
		{"edge burst of a fixed window, told fixed", edge, Expectation{Limit: fixed(100, time.Minute)}, Pass, 100, 0},
		{"an arrival a window old is outside", at(0, 1000*ms), Expectation{Limit: sliding(1, time.Second)}, Pass, 1, 0},
		{"a nanosecond younger is inside", at(0, 1000*ms-1), Expectation{Limit: sliding(1, time.Second)}, Fail, 2, 0},
		{"unless stamps are no better", at(0, 1000*ms-1), Expectation{Limit: sliding(1, time.Second), Eps: time.Microsecond}, Inconclusive, 2, 0},
		{"t = 60.000 belongs to the new window", at(59999*ms, 60000*ms), Expectation{Limit: fixed(1, time.Minute)}, Pass, 1, 0},
		{"the worst window begins late", at(0, 900*ms, 1000*ms, 1100*ms), Expectation{Limit: sliding(3, time.Second)}, Pass, 3, 0},
		{"costs", []Arrival{{At: 0, Cost: 5}, {At: 50 * ms, Cost: 20}, {At: 60 * ms, Cost: 1}}, Expectation{Limit: rateOf(100, time.Second, 20)}, Pass, 26, 20},
		{"naive spacing", append(at(0, 0, 0, 0, 0, 0, 0, 0, 0, 0), spread(100, 10*ms, 10*ms)...), Expectation{Limit: rateOf(100, time.Second, 10)}, Fail, 109, 10},
		{"in flight", []Arrival{{At: 0, End: 10}, {At: 5, End: 20}, {At: 10, End: 30}}, Expectation{Limit: Limit{InFlight: 2}}, Pass, 2, 0},
		{"in flight, one never answered", []Arrival{{At: 7, End: 0}, {At: 12, End: 20}, {At: 15, End: 30}}, Expectation{Limit: Limit{InFlight: 2}}, Fail, 3, 0},
		{"in flight, in doubt", []Arrival{{At: 0, End: 11}, {At: 10, End: 20}}, Expectation{Limit: Limit{InFlight: 1}, Eps: 1}, Inconclusive, 2, 0},
		{"nothing", nil, Expectation{Limit: rateOf(1, time.Second, 1)}, Pass, 0, 0},
	} {
		v := Check(c.a, c.claim)
		if v.Outcome != c.want || v.Worst != c.worst || c.burst != 0 && (v.Burst < c.burst-1e-9 || v.Burst > c.burst+1e-9) {
			t.Errorf("%s: %v; want %s, worst %d, burst %g", c.name, v, c.want, c.worst, c.burst)
		}
	}
}

// TestCheckAgainstAllPairs compares Check with the definition of a rate, computed in exact rationals for every pair of
// arrivals.
func TestCheckAgainstAllPairs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(t, "n")
		r := Rate{
			Count: rapid.Int64Range(1, 1000).Draw(t, "count"),
			Per:   time.Duration(rapid.Int64Range(1, 1e15).Draw(t, "per")),
			Burst: rapid.Int64Range(1, 10).Draw(t, "burst"),
		}
		var a []Arrival
		for range n {
			a = append(a, Arrival{
				At:   rapid.Int64Range(0, 1e15).Draw(t, "at"),
				Cost: rapid.Int64Range(1, 5).Draw(t, "cost"),
			})
		}
		v := Check(a, Expectation{Limit: Limit{Rate: &r}})
		a = inOrder(a)
		burst, worst := new(big.Rat), int64(0)
		for i := range a {
			sum := int64(0)
			for j := i; j < n; j++ {
				sum += a[j].Cost
				if a[j].At-a[i].At < int64(r.Per) {
					worst = max(worst, sum)
				}
				leaked := new(big.Rat).Mul(big.NewRat(r.Count, int64(r.Per)), big.NewRat(a[j].At-a[i].At, 1))
				if b := leaked.Sub(big.NewRat(sum, 1), leaked); b.Cmp(burst) > 0 {
					burst = b
				}
			}
		}
		allowed := r.Count
		if r.Burst > r.Count {
			allowed += r.Burst
		}
		want := Pass
		if worst > allowed || burst.Cmp(big.NewRat(r.Burst, 1)) > 0 {
			want = Fail
		}
		exact, _ := burst.Float64()
		if v.Worst != worst || v.Outcome != want || v.Burst < exact*(1-1e-9) || v.Burst > exact*(1+1e-9) {
			t.Fatalf("%v; want %s, worst %d, burst %g", v, want, worst, exact)
		}
	})
}

func TestPace(t *testing.T) {
	even := Pace(spread(101, 5, 10*ms), Interval{10_000, 1})
	if even.Utilisation != 1 || even.PartsPerMillion != 0 || even.Near != 1 || even.TimeError != 0 || even.MedianGap != 10*time.Millisecond {
		t.Errorf("even: %+v", even)
	}
	half := Pace(spread(101, 5, 20*ms), Interval{10_000, 1})
	if half.Utilisation < 0.49 || half.Utilisation > 0.51 || half.PartsPerMillion > -490_000 {
		t.Errorf("half as fast: %+v", half)
	}
	late := Pace(at(0, 10*ms, 30*ms, 30*ms, 40*ms), Interval{10_000, 1})
	if late.CatchUp != 0.25 || late.TimeError != 10*time.Millisecond || late.MinGap != 0 || late.MaxGap != 20*time.Millisecond {
		t.Errorf("one late: %+v", late)
	}
}
