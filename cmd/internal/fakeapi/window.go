package fakeapi

import (
	"cmp"
	"slices"
	"time"
)

// Window is the fullest window of a given length.
type Window struct {
	Count int   // calls in it
	Cost  int64 // the sum of their costs
	// From and To are the times of its first and last call, in nanoseconds as Arrival.At.
	From, To int64
}

// FullestByCount returns the window of length per with the most calls, FullestByCost the one with the highest sum of costs: exact, by
// two pointers over every window [t, t+per) that begins at an arrival. The earliest of several equal ones is returned; the zero
// Window if there are no arrivals. per must be above zero.
func FullestByCount(arrivals []Arrival, per time.Duration) Window {
	return fullest(arrivals, per, func(x, y Window) int { return cmp.Compare(x.Count, y.Count) })
}

// FullestByCost is FullestByCount with the calls' units instead of their number.
func FullestByCost(arrivals []Arrival, per time.Duration) Window {
	return fullest(arrivals, per, func(x, y Window) int { return cmp.Compare(x.Cost, y.Cost) })
}

func fullest(arrivals []Arrival, per time.Duration, compare func(x, y Window) int) Window {
	if per <= 0 {
		panic("fakeapi: a window must have a length")
	}
	arrivals = ByTime(arrivals)
	var best, now Window
	first := 0
	for i := range arrivals {
		now.Count++
		now.Cost += arrivals[i].Cost
		for arrivals[i].At-arrivals[first].At >= int64(per) {
			now.Count--
			now.Cost -= arrivals[first].Cost
			first++
		}
		now.From, now.To = arrivals[first].At, arrivals[i].At
		if compare(now, best) > 0 {
			best = now
		}
	}
	return best
}

// Gap is the time between two neighbouring arrivals.
type Gap struct {
	Length        time.Duration
	Before, After int64 // their numbers
}

// MinGap returns the shortest gap; ok is false with fewer than two arrivals.
func MinGap(arrivals []Arrival) (gap Gap, ok bool) {
	arrivals = ByTime(arrivals)
	for i := 1; i < len(arrivals); i++ {
		length := time.Duration(arrivals[i].At - arrivals[i-1].At)
		if !ok || length < gap.Length {
			gap, ok = Gap{length, arrivals[i-1].Number, arrivals[i].Number}, true
		}
	}
	return gap, ok
}

// MostInFlight returns how many calls were running at once at the most, and since when. A call runs from its arrival to its end, the
// end not included; one without an end runs to the last arrival of all.
func MostInFlight(arrivals []Arrival) (most int, at int64) {
	type step struct {
		at    int64
		delta int
	}
	steps := make([]step, 0, 2*len(arrivals))
	for i := range arrivals {
		steps = append(steps, step{arrivals[i].At, 1})
		if arrivals[i].Ending != Running {
			steps = append(steps, step{max(arrivals[i].End, arrivals[i].At+1), -1})
		}
	}
	slices.SortFunc(steps, func(x, y step) int {
		return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.delta, y.delta))
	})
	running := 0
	for _, s := range steps {
		running += s.delta
		if running > most {
			most, at = running, s.at
		}
	}
	return most, at
}
