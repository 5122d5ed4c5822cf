package fakeapi

import (
	"cmp"
	"slices"
	"time"
)

// Window is the fullest window of some length.
type Window struct {
	Count int   // calls in it
	Cost  int64 // the sum of their costs
	// From and To are the times of its first and last call, as in Arrival.At.
	From, To int64
}

// FullestByCount returns the window of length per with the most calls. It is exact: it compares every window [t, t+per)
// that begins at an arrival. Of equal windows it returns the earliest. Without arrivals it returns the zero Window. per
// must be above zero.
func FullestByCount(arrivals []Arrival, per time.Duration) Window {
	return fullest(arrivals, per, func(x, y Window) int { return cmp.Compare(x.Count, y.Count) })
}

// FullestByCost is FullestByCount for the sum of the calls' costs.
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
	Before, After int64 // the numbers of the two
}

// MinGap returns the shortest gap. ok is false if there are fewer than two arrivals.
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

// MostInFlight returns the largest number of calls that ran at once, and the first time at which that many ran. A call
// runs from its arrival until just before its end. A call without an end runs on.
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
