package outlook

import (
	"math"
	"time"
)

// Growth is a straight line through the numbers of jobs that came on each whole day, by least squares.
type Growth struct {
	Days int     `json:"whole_days"` // of UTC
	Last float64 `json:"jobs_a_day"` // of the line, on the last of these days
	More float64 `json:"more_each_day"`
	// Unclear says that the days differ by more than they grow: the line explains less than half of their variance.
	// Nothing is then said about the future.
	Unclear bool `json:"unclear,omitempty"`

	ago float64 // how many days the last of these days is before now
}

// leastDays is how many whole days a line needs.
const leastDays = 3

// mostAhead bounds how many days ahead a growth is followed.
const mostAhead = 365

// clearFrom is the part of the variance that a line must explain to be clear.
const clearFrom = 0.5

// growthOf returns the growth that the numbers of jobs on consecutive days show. It returns nil for fewer than
// leastDays days.
func growthOf(jobs []int) *Growth {
	if len(jobs) < leastDays {
		return nil
	}
	middle, mean := float64(len(jobs)-1)/2, 0.0
	for _, n := range jobs {
		mean += float64(n) / float64(len(jobs))
	}
	square, product, variance := 0.0, 0.0, 0.0
	for day, n := range jobs {
		x, y := float64(day)-middle, float64(n)-mean
		square, product, variance = square+x*x, product+x*y, variance+y*y
	}
	g := &Growth{Days: len(jobs), More: product / square}
	g.Last = max(0, mean+g.More*middle)
	g.Unclear = variance > 0 && g.More*product < clearFrom*variance
	return g
}

// Known reports whether the days say anything about the future.
func (g *Growth) Known() bool { return g != nil && !g.Unclear }

// grows reports whether more jobs come each day.
func (g *Growth) grows() bool { return g.Known() && g.More > 0 && g.Last > 0 }

// in returns the load after some days from now: the line's value then, divided by its value on the last whole day.
// Without a growth it returns 1.
func (g *Growth) in(days float64) float64 {
	if !g.grows() {
		return 1
	}
	return 1 + g.More*(days+g.ago)/g.Last
}

// until returns in how many days the load reaches times. It returns 0 if times is 1 or less. It returns nil if the load
// does not reach times within mostAhead days, or if no growth is known.
func (g *Growth) until(times float64) *int {
	if times <= 1 {
		return new(int)
	}
	if !g.grows() {
		return nil
	}
	days := max(0, math.Ceil((times-1)*g.Last/g.More-g.ago))
	if days > mostAhead {
		return nil
	}
	whole := int(days)
	return &whole
}

// wholeDays returns the numbers of the first and the last day of UTC that lie wholly between two times. last is before
// first if there is none.
func wholeDays(from, until time.Time) (first, last int64) {
	const day = int64(24 * time.Hour / time.Second)
	return (from.Unix() + day - 1) / day, dayOf(until) - 1
}

// dayOf returns the number of the day of UTC that a time lies in.
func dayOf(at time.Time) int64 { return at.Unix() / int64(24*time.Hour/time.Second) }
