package bucket

import (
	"cmp"
	"slices"
)

// Checking is Check for arrivals that come one by one, in the order of their times and with exact stamps. It keeps the
// arrivals of one period, or the calls under way, and nothing older. It is not safe for concurrent use.
type Checking struct {
	expected Expectation
	verdict  Verdict
	seen     int  // number of arrivals
	judges   bool // the arrival that is being added can make the check fail

	window   []counted // arrivals that may share a window with the next, the oldest first
	sum      int64     // units in the window
	beyond   int64     // taken in the window beyond reservations
	period   span      // of a calendar or fixed quota
	first    int       // index of the period's first arrival
	underWay []counted // ends of the calls under way, the earliest first

	count, per uint64 // of a rate, in lowest terms
	queue      wide   // in units times per
	most       wide
	start      int // arrival at which the queue was last empty
	last       int64
	filled     bool // an arrival is in the queue
}

// counted is an arrival with its number and time.
type counted struct {
	at, cost, beyond int64
	index            int
}

// NewChecking begins a check. The expectation's Eps is not used.
func NewChecking(expected Expectation) *Checking {
	c := &Checking{expected: expected, verdict: Verdict{Outcome: Pass}}
	switch l := expected.Limit; l.Kind() {
	case KindRate:
		g := gcd(l.Rate.Count, int64(l.Rate.Per))
		c.count, c.per = uint64(l.Rate.Count/g), uint64(int64(l.Rate.Per)/g)
		c.verdict.Allowed = l.Rate.allowed()
	case KindQuota:
		c.verdict.Allowed = l.Quota.Count
	case KindBudget:
		c.verdict.Allowed = l.Budget.Count
	case KindInFlight:
		c.verdict.Allowed = l.InFlight
	}
	return c
}

// Add checks the next arrival.
func (c *Checking) Add(a Arrival) {
	cost := a.takes()
	if c.verdict.Units += cost + a.Beyond; cost > 0 {
		c.verdict.Calls++
	}
	c.judges = true
	c.add(a)
}

// Before adds the next arrival, of a call that was made before the limit was in force. The call counts in every window
// but fails none. over reports whether the call would have failed.
func (c *Checking) Before(a Arrival) (over bool) {
	c.judges = false
	return c.add(a)
}

func (c *Checking) add(a Arrival) (over bool) {
	a.Cost = a.takes()
	index := c.seen
	c.seen++
	switch l := c.expected.Limit; l.Kind() {
	case KindRate:
		over = c.slide(a, int64(l.Rate.Per), index)
		if c.judges {
			c.fill(a, l.Rate.Burst, index)
		}
	case KindQuota:
		over = c.addToQuota(a, *l.Quota, index)
	case KindBudget:
		over = c.addToQuota(a, l.Budget.Quota, index)
	case KindInFlight:
		over = c.overlap(a, index)
	}
	return over
}

// Verdict returns the result of the arrivals so far.
func (c *Checking) Verdict() Verdict {
	v := c.verdict
	if c.per > 0 {
		v.Burst = c.most.float() / float64(c.per)
	}
	return v
}

func (c *Checking) addToQuota(a Arrival, q Quota, index int) (over bool) {
	if q.Window == Sliding {
		return c.slide(a, int64(q.Per), index)
	}
	if at := Micros(floorDiv(a.At, 1000)); c.seen == 1 || at >= c.period.end {
		c.period, c.sum, c.beyond, c.first = q.spanAt(at), 0, 0, index
	}
	c.sum, c.beyond = c.sum+a.Cost, c.beyond+a.Beyond
	return c.found(c.sum, c.first, index)
}

// slide checks the window that ends with this arrival. One of these windows is the worst.
func (c *Checking) slide(a Arrival, per int64, index int) (over bool) {
	gone := 0
	for gone < len(c.window) && a.At-c.window[gone].at >= per {
		c.sum, c.beyond = c.sum-c.window[gone].cost, c.beyond-c.window[gone].beyond
		gone++
	}
	c.window = append(c.window[gone:], counted{a.At, a.Cost, a.Beyond, index})
	c.sum, c.beyond = c.sum+a.Cost, c.beyond+a.Beyond
	return c.found(c.sum, c.window[0].index, index)
}

// overlap counts the calls under way when this one starts.
func (c *Checking) overlap(a Arrival, index int) (over bool) {
	gone := 0
	for gone < len(c.underWay) && c.underWay[gone].at <= a.At {
		gone++
	}
	end := a.End
	if end < a.At {
		end = int64(maxMicros) * 1000
	}
	c.underWay = slices.Delete(c.underWay, 0, gone)
	at, _ := slices.BinarySearchFunc(c.underWay, end, func(x counted, end int64) int { return cmp.Compare(x.at, end) })
	c.underWay = slices.Insert(c.underWay, at, counted{at: end, index: index})
	first := index
	for _, x := range c.underWay {
		first = min(first, x.index)
	}
	return c.found(int64(len(c.underWay)), first, index)
}

// found notes the units of one window, and reports whether there are too many.
func (c *Checking) found(units int64, from, to int) (over bool) {
	over = units > c.verdict.Allowed
	if !c.judges {
		return over
	}
	c.verdict.exceed(units, c.beyond)
	if units > c.verdict.Worst {
		c.verdict.Worst, c.verdict.From, c.verdict.To = units, from, to
	}
	if over {
		c.verdict.worsen(Fail)
	}
	return over
}

// fill drains the virtual queue of a rate up to the arrival's time, and then adds the arrival's units. The check fails
// if the queue gets longer than burst allows.
func (c *Checking) fill(a Arrival, burst int64, index int) {
	if c.filled {
		drained := mul(c.count, uint64(a.At-c.last))
		if c.queue.cmp(drained) <= 0 {
			c.queue, c.start = wide{}, index
		} else {
			c.queue = c.queue.sub(drained)
		}
	}
	c.last, c.filled = a.At, true
	c.queue = c.queue.add(mul(uint64(a.Cost), c.per))
	if c.queue.cmp(c.most) <= 0 {
		return
	}
	c.most, c.verdict.BurstFrom, c.verdict.BurstTo = c.queue, c.start, index
	if c.most.cmp(mul(uint64(burst), c.per).add(mul(c.count, uint64(c.expected.blur())))) > 0 {
		c.verdict.worsen(Fail)
	}
}
