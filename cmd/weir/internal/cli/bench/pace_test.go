package bench

import (
	"testing"
	"time"
)

// TestJudge checks that judge finds the fullest second of any key, wherever that second begins, and the use of the
// rate. The jobs have the keys in turn.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name         string
		keys         int
		ms           []int64
		use, fullest float64
	}{
		{"even", 1, []int64{0, 500, 1000, 1500, 2000}, 1, 1},
		{"not in order", 1, []int64{500, 0, 1000, 2000, 1500}, 1, 1},
		{"three within a second", 1, []int64{0, 700, 1000, 1699, 2000}, 1, 1.5},
		{"half, and another key", 2, []int64{0, 0, 1000, 500, 2000, 1000}, 0.75, 1},
	} {
		times := make([]int64, len(c.ms))
		for i, ms := range c.ms {
			times[i] = ms * int64(time.Millisecond)
		}
		if use, fullest := judge(times, course{rate: 2, keys: c.keys}); use != c.use || fullest != c.fullest {
			t.Errorf("%s: used %v, fullest %v; want %v, %v", c.name, use, fullest, c.use, c.fullest)
		}
	}
}
