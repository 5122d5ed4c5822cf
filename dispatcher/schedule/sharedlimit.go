package schedule

import (
	"math"
	"slices"
	"time"

	"weir/bucket"
)

// sharedLimit is this process's view of one limit that keys share: what a call takes of it, how soon it lets calls
// start, and how much of it is used. It decides nothing: the store does. With a new policy, nothing is known at first.
type sharedLimit struct {
	*bucket.Limit
	index    int             // in the rules, and in the costs of a job
	interval bucket.Interval // of a rate: between two units
	unit     float64         // for how long one unit uses up the limit, in µs; 0 for calls in flight and shadow limits
	burst    int64           // of a rate: units at once
	most     int64           // of calls in flight: how many may run
	firstly  float64         // what a call takes as configured, until one has started
	cost     float64         // what calls took lately; 0 until one has started
	booked   bucket.Micros   // of a rate: the theoretical arrival time by the grants of this process
	started  rateUse         // of a rate: units of the calls that started
	level    *bucket.Level   // as the store last reported it; nil for none

	// How soon it lets calls start: see near.
	known bool
	tat   bucket.Micros // of a rate: the theoretical arrival time, by what this process was granted or refused
	sure  bucket.Micros // from when on earlier grants to other processes do not matter; 0 before the first grant
	left  int64         // of a quota or budget: units left in its period
}

// SharedLimits are those of a policy, in the order of its rules.
type SharedLimits []sharedLimit

func newSharedLimits(p *Policy) SharedLimits {
	limits := make(SharedLimits, len(p.Rules.Shared))
	for i := range limits {
		l := &limits[i]
		l.Limit, l.index = &p.Rules.Shared[i], i
		l.firstly = max(1, float64(l.Cost.Constant))
		switch l.Kind() {
		case bucket.KindRate:
			l.interval, l.burst = p.Rules.Interval(*l.Rate), p.Rules.Burst(*l.Rate)
			l.unit = float64(l.interval.Duration().Microseconds())
		case bucket.KindQuota:
			l.unit = float64(l.Quota.Length().Microseconds()) / float64(l.Quota.Count)
		case bucket.KindBudget:
			l.unit, l.firstly = float64(l.Budget.Length().Microseconds())/float64(l.Budget.Count), float64(p.Price)
		case bucket.KindInFlight: // a permit comes back, however large the call was
			l.most = p.Rules.Lowered(l.InFlight)
		}
		if l.Shadow {
			l.unit = 0
		}
	}
	return limits
}

// named returns the limit of a name, nil if there is none.
func (limits SharedLimits) named(name string) *sharedLimit {
	i := slices.IndexFunc(limits, func(l sharedLimit) bool { return l.Name == name })
	if i < 0 {
		return nil
	}
	return &limits[i]
}

// areInFlight reports whether the limit of a name is one of calls running at once.
func (limits SharedLimits) areInFlight(name string) bool {
	l := limits.named(name)
	return l != nil && l.InFlight > 0
}

// of returns the limits to which these costs belong. Costs may be of former rules.
func (limits SharedLimits) of(costs []int64) SharedLimits {
	return limits[:min(len(limits), len(costs))]
}

// serviceTime returns for how long a call with these costs uses up the limit that it burdens most.
func (limits SharedLimits) serviceTime(costs []int64) serviceTime {
	most := 1.0
	for i := range limits.of(costs) {
		most = max(most, float64(costs[i])*limits[i].unit)
	}
	return serviceTime(min(math.Ceil(most), float64(mostServiceTime)))
}

// interval returns the time between two calls with these costs at the rate that binds them most; 0 if keys share no
// rate.
func (limits SharedLimits) interval(costs []int64) (most time.Duration) {
	for i := range limits {
		l := &limits[i]
		if l.Shadow || l.Rate == nil {
			continue
		}
		cost := int64(1)
		if i < len(costs) {
			cost = costs[i]
		}
		most = max(most, min(l.interval.Duration(), longestInterval/time.Duration(max(cost, 1)))*time.Duration(cost))
	}
	return most
}

// granted notes that a job with these costs was granted the slot at.
func (limits SharedLimits) granted(costs []int64, at bucket.Micros) {
	for i := range limits.of(costs) {
		l, cost := &limits[i], float64(costs[i])
		if l.cost == 0 {
			l.cost = cost
		}
		l.cost += (cost - l.cost) / 8
		l.booked = later(max(at, l.booked), cost, l.unit)
		switch l.Kind() {
		case bucket.KindRate:
			most := later(at, max(cost, float64(l.burst)), l.unit) // else the slot would be later
			if l.sure == 0 {
				l.sure = most
			}
			l.tat = min(most, later(max(l.tat, at), cost, l.unit))
		case bucket.KindQuota, bucket.KindBudget:
			l.left = max(0, l.left-costs[i])
		case bucket.KindInFlight: // its calls are counted as they start
		}
	}
}

// refused notes that the limit refused a job a slot until a time.
func (l *sharedLimit) refused(j *Job, until bucket.Micros) {
	switch l.Kind() {
	case bucket.KindRate:
		saved := float64(l.burst - max(1, l.costOf(j)))
		l.known, l.tat = true, later(until, max(0, saved), l.unit)
	case bucket.KindQuota, bucket.KindBudget:
		l.left = 0
	case bucket.KindInFlight: // its permits come back as calls end
	}
}

// Learn stores how much of the limits is used; a level is valid until the next one. The caller must not change levels
// afterwards.
func (limits SharedLimits) Learn(levels []bucket.Level) {
	for i := range levels {
		level := &levels[i]
		if l := limits.named(level.Limit.Name); l != nil && l.Rate == nil {
			l.level, l.known, l.left = level, !level.Unknown, max(0, level.Count-level.Used)
		}
	}
}

// begin counts a call that starts.
func (limits SharedLimits) begin(costs []int64, now bucket.Micros) {
	for i := range limits.of(costs) {
		if l := &limits[i]; l.Rate != nil {
			l.started.units[l.started.at(l.Rate, now)] += costs[i]
		}
	}
}

// costOf returns the units of the limit that a job takes. It counts money as 0: every job of an api costs the same.
func (l *sharedLimit) costOf(j *Job) int64 {
	if l.Budget == nil && l.index < len(j.Costs) {
		return j.Costs[l.index]
	}
	return 0
}

// usual returns what a call usually takes of the limit.
func (l *sharedLimit) usual() float64 {
	if l.cost > 0 && l.Budget == nil {
		return l.cost
	}
	return l.firstly
}

// near returns how many calls the limit lets start within LongWait, less one, and whether that is known. calls run
// now, and last callTime.
func (l *sharedLimit) near(now bucket.Micros, calls int, callTime time.Duration) (n float64, known bool) {
	unit, cost, soon := max(1, l.unit), max(1, l.usual()), now.Add(LongWait)
	switch l.Kind() {
	case bucket.KindRate:
		saved := max(0, float64(l.burst)/cost-1)
		near := saved + float64(max(l.tat, now).Until(soon).Microseconds())/(unit*cost)
		return near, l.known || l.sure != 0 && l.sure <= now
	case bucket.KindInFlight:
		return float64(l.most-int64(calls)) + float64(l.most)*float64(LongWait)/float64(max(1, callTime)), true
	case bucket.KindQuota, bucket.KindBudget:
		left := float64(l.left)
		switch {
		case l.Budget != nil && l.Budget.OnExhausted == bucket.DeadLetter:
			return MaxStaged, true // a job that it refuses ends, and a job must be ready to end
		case !l.known:
			return MaxStaged, false
		case l.level.End == 0:
			left += float64(LongWait.Microseconds()) / unit // comes back on average
		case l.level.End <= soon:
			left += float64(l.level.Count)
		}
		return left/cost - 1, true
	}
	return MaxStaged, true
}

// near returns how many calls the limits let start within LongWait, less one, whether that is known of all of them,
// and which lets the fewest start, "" if none binds.
func (limits SharedLimits) near(now bucket.Micros, calls int, callTime time.Duration) (n float64, known bool, by string) {
	n, known = MaxStaged, true
	for i := range limits {
		l := &limits[i]
		if l.Shadow {
			continue
		}
		near, sure := l.near(now, calls, callTime)
		if near < n {
			n, by = near, l.Name
		}
		known = known && sure
	}
	return max(0, n), known, by
}

// perSecond returns how many usual calls per second the limit lets pass if each takes that long; 0 for a limit that
// does not count by the second.
func (l *sharedLimit) perSecond(took time.Duration) float64 {
	switch l.Kind() {
	case bucket.KindRate:
		return l.interval.PerSecond() / max(1, l.usual())
	case bucket.KindInFlight:
		if took > 0 {
			return float64(l.most) / max(took, time.Microsecond).Seconds()
		}
	case bucket.KindQuota, bucket.KindBudget: // what is left of them is reported beside it
	}
	return 0
}

// after returns when the limit lets a call pass behind ahead others that come from a time on; 0 if it does not bind.
// shut is until when the store has refused it, 0 if it has not. calls run now, each takes took; 0 if no call has
// ended yet.
func (l *sharedLimit) after(ahead float64, from, shut bucket.Micros, calls int, took time.Duration) (at bucket.Micros) {
	need := (ahead + 1) * l.usual()
	switch l.Kind() {
	case bucket.KindRate:
		at = max(shut, later(max(from, l.booked), need-float64(l.Rate.Burst), l.unit))
		if shut != 0 {
			at = max(at, later(shut, ahead*l.usual(), l.unit))
		}
	case bucket.KindInFlight:
		if took <= 0 {
			return 0
		}
		if place := int64(calls) + int64(ahead) + 1; place > l.most {
			waves := float64((place-1)/l.most-1) + 1/float64(l.most+1) // the first of so many calls ends soon
			at = later(from, waves, float64(took.Microseconds()))
		}
	case bucket.KindQuota, bucket.KindBudget:
		at = max(shut, l.afterPeriod(need, from))
	}
	return at
}

// afterPeriod returns when a quota or budget has room for that many units, by how much of it was used when the
// schedule last learned its level; 0 if it has room now, or if that is not known.
func (l *sharedLimit) afterPeriod(need float64, from bucket.Micros) bucket.Micros {
	quota, level := l.Quota, l.level
	if l.Budget != nil {
		quota = &l.Budget.Quota
		if l.Budget.OnExhausted == bucket.DeadLetter {
			return 0 // its job does not wait: it ends
		}
	}
	if level == nil || level.Unknown || level.Bound || level.End <= from || level.Count <= 0 {
		return 0
	}
	short := need - float64(level.Count-level.Used)
	if short <= 0 {
		return 0
	}
	return later(level.End, math.Ceil(short/float64(level.Count))-1, float64(quota.Length().Microseconds()))
}

// LimitUse is how much this process uses now of a rate, or of the calls in flight, that all keys share.
type LimitUse struct {
	Limit string
	Used  int64         // units of calls that started within Per; of in_flight, calls that run
	Count int64         // the most that there may be
	Per   time.Duration // 0 for in_flight
}

// use returns how much of the limit is used here. calls run now. The store counts quotas and budgets: counted is
// false for these.
func (l *sharedLimit) use(r *bucket.Rules, now bucket.Micros, calls int) (u LimitUse, counted bool) {
	u.Limit = l.Name
	switch l.Kind() {
	case bucket.KindRate:
		u.Per = usedPer(l.Rate)
		u.Count = int64(float64(r.Lowered(l.Rate.Count)) * float64(u.Per) / float64(l.Rate.Per))
		l.started.at(l.Rate, now)
		for _, units := range l.started.units {
			u.Used += units
		}
	case bucket.KindInFlight:
		u.Used, u.Count = int64(calls), l.most
	case bucket.KindQuota, bucket.KindBudget:
		return u, false
	}
	return u, true
}

// usedSlots is into how many parts the period of a rate is divided to count what started in it. The count is off by
// at most one part.
const usedSlots = 10

// leastUsedPer is the shortest period reported: the use of ten milliseconds informs no reader.
const leastUsedPer = time.Second

// rateUse counts the units of calls that started, by parts of the last period.
type rateUse struct {
	units [usedSlots]int64
	part  bucket.Micros // the number of the newest part since 1970
}

func usedPer(r *bucket.Rate) time.Duration { return max(r.Per, leastUsedPer) }

// at drops the parts that are over, and returns the index of the present one.
func (u *rateUse) at(r *bucket.Rate, now bucket.Micros) (place int) {
	part := now / max(1, bucket.Micros((usedPer(r)/usedSlots).Microseconds()))
	for n := 0; u.part < part && n < usedSlots; n++ {
		u.part++
		u.units[u.part%usedSlots] = 0
	}
	u.part = max(u.part, part)
	return int(part % usedSlots)
}
