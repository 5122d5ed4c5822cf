package limits

import (
	"math"
	"slices"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/turns"
)

// Call is what the limits know of a job's call.
type Call struct {
	Costs    []int64       // units that it takes, one for each limit
	reserved *Grants       // the grants that count it; nil: none
	began    bucket.Micros // when it started last
}

// Shared holds the shared limits of a policy, in the order of its rules.
type Shared []Limit

// NewShared returns the shared limits of rules. price is that of a usual call, in millionths; settles says that
// answers say what their calls cost.
func NewShared(r *bucket.Rules, price int64, settles bool, g *Grants) Shared {
	limits := make(Shared, len(r.Shared))
	for i := range limits {
		l := &limits[i]
		l.Limit, l.index, l.grants = &r.Shared[i], i, g
		l.firstly, l.settles, l.part = max(1, float64(l.Cost.Usual())), l.Cost.Settles(), 1
		switch l.Kind() {
		case bucket.KindRate:
			by := r.By(l.Limit)
			l.interval, l.burst = by.Interval(*l.Rate), by.Burst(*l.Rate)
			l.unit = float64(l.interval.Duration().Microseconds())
		case bucket.KindQuota:
			l.unit = float64(l.Quota.Length().Microseconds()) / float64(l.Quota.Count)
		case bucket.KindBudget:
			l.unit, l.firstly = float64(l.Budget.Length().Microseconds())/float64(l.Budget.Count), float64(price)
			l.settles = settles
		case bucket.KindInFlight: // a permit comes back, however large the call was
			l.most = r.By(l.Limit).Lowered(l.InFlight)
		}
		if l.Shadow {
			l.unit = 0
		}
	}
	return limits
}

// Named returns the limit with this name, nil if there is none.
func (limits Shared) Named(name string) *Limit {
	i := slices.IndexFunc(limits, func(l Limit) bool { return l.Name == name })
	if i < 0 {
		return nil
	}
	return &limits[i]
}

// Have reports whether there is a limit with this name.
func (limits Shared) Have(name string) bool { return limits.Named(name) != nil }

// ComeBackWhole reports whether the units of the limit with this name come back all at once.
func (limits Shared) ComeBackWhole(name string) bool {
	l := limits.Named(name)
	return l != nil && l.Quota != nil && l.Quota.Window != bucket.Sliding
}

// CostOf returns the units of the limit with this name that a call takes, 0 if there is none.
func (limits Shared) CostOf(c *Call, name string) int64 {
	if l := limits.Named(name); l != nil {
		return l.costOf(c)
	}
	return 0
}

// Refused notes that one of the limits refuses a call a slot.
func (limits Shared) Refused(c *Call, w *bucket.Wait) {
	if l := limits.Named(w.Limit); l != nil {
		l.refused(c, w.Until)
		l.excess = max(l.excess, w.Excess)
	}
}

// AreInFlight reports whether the limit with this name limits calls in flight.
func (limits Shared) AreInFlight(name string) bool {
	l := limits.Named(name)
	return l != nil && l.InFlight > 0
}

// of returns the limits to which these costs belong. Costs that were computed under former rules may be fewer or more
// than the limits.
func (limits Shared) of(costs []int64) Shared {
	return limits[:min(len(limits), len(costs))]
}

// ServiceTime returns for how long a call with these costs uses up the limit of which it takes the largest part.
func (limits Shared) ServiceTime(costs []int64) turns.ServiceTime {
	most := 1.0
	for i := range limits.of(costs) {
		most = max(most, float64(costs[i])*limits[i].unit)
	}
	return turns.ServiceTime(min(math.Ceil(most), float64(turns.MostServiceTime)))
}

// ServiceAtStore returns the ServiceTime by which the store counts turns. Between the apis of an account, only the
// account's limits count. If no limit belongs to an account, it returns own.
func (limits Shared) ServiceAtStore(costs []int64, own turns.ServiceTime) turns.ServiceTime {
	most, shared := 1.0, false
	for i := range limits.of(costs) {
		if limits[i].Account != "" {
			most, shared = max(most, float64(costs[i])*limits[i].unit), true
		}
	}
	if !shared {
		return own
	}
	return turns.ServiceTime(min(math.Ceil(most), float64(turns.MostServiceTime)))
}

// Interval returns the time that must lie between two calls with these costs at the shared rate that allows the fewest
// of them; 0 if keys share no rate.
func (limits Shared) Interval(costs []int64) (most time.Duration) {
	for i := range limits {
		l := &limits[i]
		if l.Shadow || l.Rate == nil {
			continue
		}
		cost := int64(1)
		if i < len(costs) {
			cost = costs[i]
		}
		if l.settles && l.took > 0 {
			cost = int64(math.Ceil(l.took))
		}
		most = max(most, min(l.interval.Duration(), LongestInterval/time.Duration(max(cost, 1)))*time.Duration(cost))
	}
	return most
}

// Granted notes that a call was granted the slot at the time at.
func (limits Shared) Granted(c *Call, at bucket.Micros) {
	costs := c.Costs
	if len(limits) > 0 {
		c.reserved = limits[0].grants
		c.reserved.open++
	}
	for i := range limits.of(costs) {
		l, cost := &limits[i], float64(costs[i])
		l.reserves = drift(l.reserves, cost)
		l.open += costs[i]
		if l.booked <= at {
			l.emptied = max(l.emptied, at)
		}
		l.booked = Later(max(at, l.booked), cost, l.unit)
		switch l.Kind() {
		case bucket.KindRate:
			most := Later(at, max(cost, float64(l.burst)), l.unit) // otherwise the slot would be later
			if l.sure == 0 {
				l.sure = most
			}
			l.tat = min(most, Later(max(l.tat, at), cost, l.unit))
		case bucket.KindQuota, bucket.KindBudget:
			l.left = max(0, l.left-costs[i])
		case bucket.KindInFlight: // its calls are counted as they start
		}
	}
}

// Settled notes what a call took whose slot was at the time at. actual is nil if it took what it had reserved.
func (limits Shared) Settled(c *Call, at bucket.Micros, actual []int64, now bucket.Micros) {
	if !limits.Release(c) {
		return // its costs belong to former rules
	}
	for i := range limits.of(c.Costs) {
		l, cost, took := &limits[i], c.Costs[i], c.Costs[i]
		if i < len(actual) {
			took = actual[i]
		}
		if took > 0 || !l.settles { // an answer that cost nothing says nothing about the next call
			l.took = drift(l.took, float64(took))
		}
		if took == cost {
			continue
		}
		switch l.Kind() {
		case bucket.KindRate:
			l.started.correct(l.Rate, c.began, now, took-cost)
			l.rebook(at, now, float64(took-cost))
		case bucket.KindQuota, bucket.KindBudget:
			l.left = max(0, l.left+cost-took)
		case bucket.KindInFlight: // a permit is one permit
		}
	}
}

// Learn stores how much of the limits is used. A level stays valid until the next one. eased reports whether the vendor
// now leaves more of a limit than before, for example as an answer to another process said. The caller must not change
// levels afterwards.
func (limits Shared) Learn(levels []bucket.Level) (eased bool) {
	for i := range limits {
		l, excess := &limits[i], int64(0)
		if at := slices.IndexFunc(levels, func(level bucket.Level) bool { return level.Limit.Name == l.Name }); at >= 0 {
			level := &levels[at]
			if excess = level.Excess; l.Rate == nil {
				l.level, l.seen, l.left = level, !level.Unknown, max(0, level.Count-level.Used)
			}
		}
		eased, l.excess = eased || excess < l.excess, excess
	}
	return eased
}

// Begin counts a call that starts.
func (limits Shared) Begin(c *Call, now bucket.Micros) {
	c.began = now
	for i := range limits.of(c.Costs) {
		if l := &limits[i]; l.Rate != nil {
			l.started.units[l.started.at(l.Rate, now)] += c.Costs[i]
		}
	}
}

// Divided notes the part of the account's limits that this api may use, in thousandths, as the store last said.
func (limits Shared) Divided(thousandths int) {
	if thousandths <= 0 {
		return
	}
	for i := range limits {
		if l := &limits[i]; l.Account != "" {
			l.part = float64(thousandths) / 1000
		}
	}
}

// Near returns how many calls the limits together let start within LongWait, less one, and whether that number is known
// for each of them. by is the limit that lets the fewest start, "" if none binds. The arguments are those of
// Limit.near.
func (limits Shared) Near(now bucket.Micros, calls, held int, callTime time.Duration) (n float64, known bool, by string) {
	n, known = Plenty, true
	for i := range limits {
		l := &limits[i]
		if l.Shadow {
			continue
		}
		near, sure := l.near(now, calls, held, callTime)
		if near < n {
			n, by = near, l.Name
		}
		known = known && sure
	}
	return max(0, n), known, by
}
