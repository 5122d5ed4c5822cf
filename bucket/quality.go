package bucket

import (
	"math"
	"slices"
	"time"
)

// Quality is how evenly calls arrived. Check does not measure it: making no calls never exceeds a limit.
type Quality struct {
	Calls int
	// Utilisation is the part of the rate that was used between the first and the last arrival, 1 at best: n*T / (t_n -
	// t_1 + T). It means something only if jobs were waiting all the time.
	Utilisation float64
	// PartsPerMillion is the error of the mean rate, positive when too fast.
	PartsPerMillion float64
	// MinGap to MaxGap are the gaps between neighbours.
	MinGap, P01Gap, MedianGap, P99Gap, MaxGap time.Duration
	// Variation is the standard deviation of the gaps divided by their mean.
	Variation float64
	// CatchUp is the share of gaps that are shorter than a tenth of the interval. Near is the share of gaps that differ
	// from the interval by at most a quarter of it.
	CatchUp, Near float64
	// TimeError is the widest difference between two arrivals' deviations from an even grid. Divided by the interval it
	// is the burst that the unevenness amounts to.
	TimeError time.Duration
}

// Pace measures arrivals, all of cost 1, against an even spacing of t. For fewer than two arrivals it returns only
// Calls.
func Pace(arrivals []Arrival, t Interval) Quality {
	a := inOrder(arrivals)
	q := Quality{Calls: len(a)}
	if len(a) < 2 {
		return q
	}
	T := float64(t.P) * 1000 / float64(t.Q)
	gaps := make([]int64, len(a)-1)
	var sum, squares, least, most float64
	for i := range gaps {
		gaps[i] = a[i+1].At - a[i].At
		d := float64(gaps[i])
		sum += d
		squares += d * d
		if d < T/10 {
			q.CatchUp++
		}
		if math.Abs(d-T) <= T/4 {
			q.Near++
		}
		off := float64(a[i+1].At-a[0].At) - float64(i+1)*T
		least, most = min(least, off), max(most, off)
	}
	n := float64(len(gaps))
	q.CatchUp /= n
	q.Near /= n
	q.Utilisation = (n + 1) * T / (sum + T)
	if sum > 0 {
		q.PartsPerMillion = (n*T/sum - 1) * 1e6
		mean := sum / n
		q.Variation = math.Sqrt(max(0, squares/n-mean*mean)) / mean
	}
	slices.Sort(gaps)
	at := func(part float64) time.Duration { return time.Duration(gaps[int(part*(n-1)+0.5)]) }
	q.MinGap, q.P01Gap, q.MedianGap, q.P99Gap, q.MaxGap = at(0), at(0.001), at(0.5), at(0.99), at(1)
	q.TimeError = time.Duration(most - least)
	return q
}
