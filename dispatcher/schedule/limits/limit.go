package limits

import (
	"math"
	"time"

	"weir/bucket"
)

// Limit is this process's view of one limit that keys share: what a call takes of the limit, how soon the limit
// lets calls start, and how much of it is used. It decides nothing: the store does. Under a new policy it knows nothing
// at first.
type Limit struct {
	*bucket.Limit
	index    int             // its index in the rules, and in the costs of a job
	interval bucket.Interval // of a rate: the time between two units
	unit     float64         // for how long one unit uses up the limit, in µs; 0 for calls in flight and shadow limits
	burst    int64           // of a rate: units that may be used at the same time
	most     int64           // of calls in flight: how many may run
	settles  bool            // answers say what their calls took
	part     float64         // the part that this api gets while other apis of the account wait; 1 if none waits
	firstly  float64         // what a call takes by the configuration; used until a call has started
	reserves float64         // what calls reserved lately; 0 until one was granted a slot
	took     float64         // what calls took lately, once settled; 0 until one was settled
	open     int64           // reserved by calls that are granted and not settled
	grants   *Grants         // the calls that open counts; former holds earlier ones that it does not count
	booked   bucket.Micros   // of a rate: the theoretical arrival time by the grants of this process
	emptied  bucket.Micros   // of a rate: the last slot before which nothing was owed; earlier units stay
	started  rateUse         // of a rate: units of the calls that started
	level    *bucket.Level   // as the store last reported it; nil for none
	excess   int64           // units that only the vendor counts, as the store last said

	// How soon the limit lets calls start: see near.
	seen bool          // tat or left is as the store last said
	tat  bucket.Micros // of a rate: the theoretical arrival time, by what this process was granted or refused
	sure bucket.Micros // from then on earlier grants to other processes do not matter; 0 before the first grant
	left int64         // of a quota or budget: units left in its period
}

// Plenty is how many calls a limit lets start that does not bind.
const Plenty = 256

// LongWait is the longest wait for which a job is kept ready, and for which the limits tell how many calls they let
// start. Before a longer wait the schedule withdraws the job: its message and intent are dropped, and loaded and stored
// again later. If the flight recorder does not outlive a crash, every ready job counts as called, although it was not.
// Without an idempotency key it then becomes a letter unknown. With a LongWait of 2 s, such a crash under a shared limit
// parked 5.6 jobs on average, because a limit's checkpoint makes calls wait for up to 2 s after a start. With 250 ms it
// parks 2.7, of which one had been called.
const LongWait = 250 * time.Millisecond

// LongestInterval keeps shares of an interval within 64 bits.
const LongestInterval = time.Duration(1<<52) * time.Microsecond

// farthest is the latest time that a forecast returns, as bucket.Forecast does: the year 2255.
const farthest = bucket.Micros(1<<53 - 1)

// Later returns at plus n times each, which is in microseconds. It returns at most farthest.
func Later(at bucket.Micros, n, each float64) bucket.Micros {
	return bucket.Micros(min(float64(farthest), float64(at)+math.Ceil(n*each)))
}

// Outlook says what a forecast assumes about calls that are not settled yet.
type Outlook int8

// The outlooks.
const (
	Likely   Outlook = iota // calls take what they took lately
	BestCase                // calls that are not settled yet, of any process, take nothing
)

// drift moves an average of the last few values towards the next value, and returns it. The first value becomes the
// average.
func drift(average, next float64) float64 {
	if average == 0 {
		return next
	}
	return average + (next-average)/8
}

// rebook adds units, which may be negative, to what a rate counts for the call whose slot was at the time at. Negative
// units come back only if answers tell what calls took, and if something has been owed ever since that slot.
func (l *Limit) rebook(at, now bucket.Micros, units float64) {
	switch {
	case units > 0:
		l.booked, l.tat = Later(max(now, l.booked), units, l.unit), Later(max(now, l.tat), units, l.unit)
	case l.settles && at >= l.emptied:
		back := bucket.Micros(-units * l.unit)
		l.booked, l.tat = l.booked-back, l.tat-back
	}
}

// refused notes that the limit refuses a call a slot until a time.
func (l *Limit) refused(c *Call, until bucket.Micros) {
	switch l.Kind() {
	case bucket.KindRate:
		saved := float64(l.burst - max(1, l.costOf(c)))
		l.seen, l.tat = true, Later(until, max(0, saved), l.unit)
	case bucket.KindQuota, bucket.KindBudget:
		l.left = 0
	case bucket.KindInFlight: // its permits come back as calls end
	}
}

// costOf returns the units of the limit that a call takes. It counts money as 0: no call is costly because of a budget.
func (l *Limit) costOf(c *Call) int64 {
	if l.Budget == nil && l.index < len(c.Costs) {
		return c.Costs[l.index]
	}
	return 0
}

// reserve returns what a call usually reserves of the limit.
func (l *Limit) reserve() float64 {
	if l.reserves > 0 {
		return l.reserves
	}
	return l.firstly
}

// usual returns what a call usually takes of the limit once it is settled. Until a call is settled, it returns what
// calls reserve.
func (l *Limit) usual() float64 {
	if l.settles && l.took > 0 {
		return l.took
	}
	return l.reserve()
}

// each returns the time in µs from one usual call to the next under a rate, if every call lasts took. A running call
// holds the units that it has reserved. So if calls last long and reserve much more than they take, the reserved units
// determine this time.
func (l *Limit) each(took time.Duration) float64 {
	held, run := l.reserve(), float64(took.Microseconds())
	return max(l.usual(), held*run/(max(float64(l.burst), held)*l.unit+run)) * l.unit / l.part
}

// comingBack returns how many of the units that running calls have reserved should come back when they are settled.
func (l *Limit) comingBack(o Outlook) float64 {
	switch reserve := l.reserve(); {
	case !l.settles || l.open <= 0:
		return 0
	case o == BestCase:
		return float64(l.open)
	default:
		return float64(l.open) * (1 - min(1, l.usual()/max(1, reserve)))
	}
}

// Reopens returns when the limit should let a call pass. The store has refused calls until shut, but running calls may
// give back before then what they did not take. took is how long a call lasts. In the best case the next answer says
// that enough is left.
func (l *Limit) Reopens(shut, from bucket.Micros, took time.Duration, o Outlook) bucket.Micros {
	if l.mayAllComeBack(o) || o == BestCase && l.excess > 0 {
		return min(shut, from)
	}
	return l.givenBack(shut, from, took, o)
}

// mayAllComeBack reports whether in the best case all units that the store counts may come back. This can be so because
// this process does not know what other processes, or calls under former policies, have reserved.
func (l *Limit) mayAllComeBack(o Outlook) bool {
	return o == BestCase && l.settles && l.grants.Hidden()
}

// givenBack is Reopens on the assumption that only calls give units back whose reservations this process knows.
func (l *Limit) givenBack(shut, from bucket.Micros, took time.Duration, o Outlook) bucket.Micros {
	back := l.comingBack(o)
	if back <= 0 || shut <= from {
		return shut
	}
	settled := from // when some of the calls have ended
	if o == Likely {
		settled = min(shut, from.Add(took/2))
	}
	if l.Rate == nil {
		return settled // afterPeriod says whether the units that come back are enough
	}
	return max(settled, Later(shut, -back, l.unit))
}

// near returns how many calls the limit lets start within LongWait, less one, and whether that number is known. calls
// is how many calls run now, held is how many operations hold their slots, and callTime is how long a call usually
// lasts.
func (l *Limit) near(now bucket.Micros, calls, held int, callTime time.Duration) (n float64, known bool) {
	unit, cost, soon := max(1, l.unit), max(1, l.reserve()), now.Add(LongWait)
	switch l.Kind() {
	case bucket.KindRate:
		saved := max(0, float64(l.burst)/cost-1)
		near := saved + float64(max(l.tat, now).Until(soon).Microseconds())/(unit*cost)
		return near, l.seen || l.sure != 0 && l.sure <= now
	case bucket.KindInFlight:
		most := max(0, l.most-int64(held)) // operations hold their slots for a long time
		return float64(most-int64(calls)) + float64(most)*float64(LongWait)/float64(max(1, callTime)), true
	case bucket.KindQuota, bucket.KindBudget:
		left := float64(l.left)
		switch {
		case l.Budget != nil && l.Budget.OnExhausted == bucket.DeadLetter:
			return Plenty, true // a job that the budget refuses ends, and a job must be ready to end
		case !l.seen:
			return Plenty, false
		case l.level.End == 0:
			left += float64(LongWait.Microseconds()) / unit // units that come back on average
		case l.level.End <= soon:
			left += float64(l.level.Count)
		}
		return left/cost - 1, true
	}
	return Plenty, true
}

// PerSecond returns how many usual calls per second the limit lets pass if each lasts took. It returns 0 for quotas and
// budgets.
func (l *Limit) PerSecond(took time.Duration) float64 {
	switch l.Kind() {
	case bucket.KindRate:
		return 1e6 / max(1e-3, l.each(took))
	case bucket.KindInFlight:
		if took > 0 {
			return float64(l.most) * l.part / max(took, time.Microsecond).Seconds()
		}
	case bucket.KindQuota, bucket.KindBudget: // reports say what is left of them instead
	}
	return 0
}

// After returns when the limit lets a call pass; 0 if the limit does not bind it. ahead is how many other calls come
// before this one; they start at from or later. shut is until when the store refuses calls, 0 if it does not. calls is
// how many calls run now. took is how long each lasts, 0 if no call has ended yet.
func (l *Limit) After(ahead float64, from, shut bucket.Micros, calls int, took time.Duration, o Outlook) (at bucket.Micros) {
	each, usual, last, part := l.each(took), l.usual(), l.reserve(), l.part
	if o == BestCase { // the other apis stop waiting
		each, part = each*part, 1
	}
	if o == BestCase && l.settles {
		each, usual, last = 0, 0, 1
	}
	shut = l.Reopens(shut, from, took, o)
	switch l.Kind() {
	case bucket.KindRate:
		booked := l.givenBack(l.booked, from, took, o)
		at = max(shut, Later(max(from, booked), ahead*each/l.unit+last-float64(l.Rate.Burst), l.unit))
		if shut != 0 {
			at = max(at, Later(shut, ahead, each))
		}
	case bucket.KindInFlight:
		if took <= 0 {
			return 0
		}
		most := max(1, int64(float64(l.most)*part))
		if place := int64(calls) + int64(ahead) + 1; place > most {
			waves := float64((place-1)/most-1) + 1/float64(most+1) // the first of the running calls should end soon
			at = Later(from, waves, float64(took.Microseconds()))
		}
	case bucket.KindQuota, bucket.KindBudget:
		if at = shut; !l.mayAllComeBack(o) {
			at = max(shut, l.afterPeriod(ahead*usual/part+last-l.comingBack(o), from, o))
		}
	}
	return at
}

// afterPeriod returns when a quota or budget will have room for need units, by the level that was read last. It returns
// 0 if there is room now, if the level does not tell, or if no job waits for the budget. Units that only the vendor
// counts stay used until the vendor's count begins again. In the best case they are free at once.
func (l *Limit) afterPeriod(need float64, from bucket.Micros, o Outlook) bucket.Micros {
	quota, level := l.Quota, l.level
	if l.Budget != nil {
		quota = &l.Budget.Quota
		if l.Budget.OnExhausted == bucket.DeadLetter {
			return 0 // a job that it refuses does not wait: it ends
		}
	}
	if level == nil || level.Unknown || level.Bound || level.End <= from || level.Count <= 0 {
		return 0
	}
	short, excess := need-float64(level.Count-level.Used), float64(level.Excess)
	switch {
	case short <= 0 || o == BestCase && short <= excess:
		return 0
	case short <= excess && level.ExcessUntil < level.End:
		return level.ExcessUntil
	}
	return Later(level.End, math.Ceil(short/float64(level.Count))-1, float64(quota.Length().Microseconds()))
}
