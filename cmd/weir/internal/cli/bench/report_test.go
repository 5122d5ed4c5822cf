package bench

import (
	"testing"
	"time"
)

// TestSpread is of figures in any order.
func TestSpread(t *testing.T) {
	if got := spread([]float64{4, 1, 3}); got != (Spread{3, 1, 4}) {
		t.Errorf("of three: %+v", got)
	}
	if got := spread([]float64{4, 1, 3, 8}); got != (Spread{3.5, 1, 8}) {
		t.Errorf("of four: %+v", got)
	}
}

// TestRatioIsOfTheSameRound: a machine that was slow for both in one round changes no ratio.
func TestRatioIsOfTheSameRound(t *testing.T) {
	over, under := Contender{Name: "a", Each: []float64{10, 1, 6}}, Contender{Name: "b", Each: []float64{20, 2, 12}}
	if got := ratio(over, under); got != (Ratio{"a / b", Spread{0.5, 0.5, 0.5}}) {
		t.Errorf("the ratio is %+v", got)
	}
}

// TestJudge finds the fullest second of any key wherever it begins, and the use of the rate.
func TestJudge(t *testing.T) {
	begin := time.Unix(1000, 0)
	at := func(ms ...int) (times []time.Time) {
		for _, m := range ms {
			times = append(times, begin.Add(time.Duration(m)*time.Millisecond))
		}
		return times
	}
	even := at(0, 500, 1000, 1500, 2000)
	for _, c := range []struct {
		name         string
		times        map[string][]time.Time
		use, fullest float64
	}{
		{"even", map[string][]time.Time{"/slow/a": even}, 1, 1},
		{"three within a second", map[string][]time.Time{"/slow/a": at(0, 700, 1000, 1699, 2000)}, 1, 1.5},
		{"half, and another key", map[string][]time.Time{"/slow/a": at(0, 1000, 2000), "/slow/b": even}, 0.75, 1},
		{"calls of the round before", map[string][]time.Time{"/slow": at(0, 1, 2), "/slow/b": even}, 1, 1},
	} {
		if use, fullest := judge(c.times, 2); use != c.use || fullest != c.fullest {
			t.Errorf("%s: used %v, fullest %v; want %v, %v", c.name, use, fullest, c.use, c.fullest)
		}
	}
}
