package contest

import (
	"iter"
	"slices"
	"time"
)

// Spread is the median of some figures, with the least and the most of them.
type Spread struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
}

// SpreadOf returns the Spread of figures. It is zero if there are none.
func SpreadOf(figures []float64) Spread {
	if len(figures) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(figures))
	n := len(sorted)
	return Spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Least: sorted[0], Most: sorted[n-1]}
}

// Ratios divides over by under, round by round, so that a round on a slow machine changes no ratio. It leaves out the
// rounds in which under is 0.
func Ratios(over, under []float64) []float64 {
	each := make([]float64, 0, len(over))
	for i, figure := range over {
		if under[i] > 0 {
			each = append(each, figure/under[i])
		}
	}
	return each
}

// Turns yields the contenders of each round, in turn. Each round begins with the next contender.
func Turns(rounds, contenders int) iter.Seq2[int, int] {
	return func(yield func(round, contender int) bool) {
		for round := range rounds {
			for turn := range contenders {
				if !yield(round, (round+turn)%contenders) {
					return
				}
			}
		}
	}
}

// Fullest returns how many of the sorted Unix times, in nanoseconds, lie in the fullest window of this length.
func Fullest(sorted []int64, window time.Duration) (most int) {
	first := 0
	for last := range sorted {
		for sorted[last]-sorted[first] >= int64(window) && first < last {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}

// PerSecond returns the rate per second of n events in took nanoseconds.
func PerSecond(n int, took int64) float64 {
	return float64(n) / max(1e-9, time.Duration(took).Seconds())
}
