package bucket

import (
	"fmt"
	"time"
)

// What the vendor says is left.
//
// An answer may say how many units of a limit the vendor has left, and when the vendor's count begins anew. If that is
// less than weir's own count would grant until then, other programs use the account, or the vendor allows less than is
// configured. The limit then has an excess: the units that the vendor counts and weir does not. Until the vendor's
// count begins anew, weir grants no more than the vendor has left.
//
// # The rule
//
// An answer is late: other calls were granted, and some have ended, since the vendor counted its call. Let
//
//	c      be the call that was answered
//	left   the units that the answer says are left, less what weir leaves unused because of headroom
//	until  when the vendor's count begins anew
//	since  the units granted after c
//	free   the units that weir's own count would still grant before until
//
// The rule assumes that the vendor counts calls in the order of their grants: left is already without the units of c
// and of calls granted before it, and still has those of calls granted after it.
//
//	an excess begins       if free > left
//	it has                 free + since - left units
//	before until it lets   left - since more units pass
//	it ends                at until, or by an answer with free + since <= left
//
// For example, weir has used 10 of a quota of 60 a minute, and the answer to the tenth call says that 30 are left for
// 40 s. If nothing was granted after it, free is 50: the excess is 20, and 30 more pass within 40 s. If three calls
// were granted after it, free is 47: the excess is still 20, and 27 pass.
//
//   - An excess begins only if free > left. Then too few are left even if the vendor had already counted all calls
//     granted so far, so calls under way cannot be the cause.
//   - The call that was granted last decides. Its answer replaces the former excess. Answers of earlier grants are
//     ignored, in whatever order they come.
//   - free leaves out the units that weir has stopped counting since c's grant: those given back, and those too old for
//     a sliding quota. The vendor may still have counted them.
//   - A sliding quota gets its own old units back meanwhile, as at the vendor. So instead of counting down what may
//     pass, it counts the excess as used.
//   - A full token bucket gets no tokens while a call is late. left may be lower by these without an excess.
//   - Until the limit has an excess, free counts only up to the earliest time that until may be: times come in whole
//     seconds, and the vendor counted the call some time before its answer came.
//   - until is at most one period of the limit away. If no answer says it, it is the end of the present period of a
//     calendar or fixed quota, and else one period after c's slot.
//   - If no answer says until, and for a token bucket, free is what a rate lets start at once: a rate gets units back
//     all the time, so a figure of 0 says nothing about later.
//   - If the limit is configured anew, its excess ends, and answers to calls granted before are ignored.
//
// # What holds
//
//  1. It never grants more: a slot is within the meter and within the excess.
//  2. An excess has at least one unit. It begins with free > left, and goes on only with free + since > left.
//  3. Nothing adds up: an excess is computed from one answer, and from no former excess.
//  4. No excess begins if only weir uses the account, and no call takes more than it has reserved. The vendor then
//     counts only units that weir had counted by c's grant or counted later, and free is what the limit leaves besides
//     all of these. Of a rate with a known until, the vendor counts in the window that ends at until: what was granted
//     in it and free are together at most the limit's (pace.go).
//  5. After an excess has begun, the vendor refuses only calls that were under way when it counted c, and what other
//     programs take afterwards. Before, it may refuse the calls that were granted until the first answer said so. If a
//     vendor rounds its time down, it may also refuse calls in the second after until.
//  6. An excess withholds too much by at most the units of calls that were granted after c and counted before c. The
//     answers to these calls correct that.
//  7. A wrong figure holds calls no longer than until. If it leaves nothing, no call is made whose answer could correct
//     it: then only a change of the limit's configuration ends it sooner.

// Left is what the answer to a call says about one limit.
type Left struct {
	Valid bool  // the rest is valid
	Units int64 // left when the vendor counted the call
	// Until is the latest time at which the vendor's count may begin anew, and Least the earliest, by the store's
	// clock. Both are 0 if the answer does not say.
	Until, Least Micros
}

// Count is how much a store had counted of one limit by a grant, the grant included.
type Count struct {
	Taken int64 // units of all grants
	Freed int64 // units that count no more: given back, or too old for a sliding quota
}

// ReadsLeft reports whether weir reads the vendor's remaining units of the limit from answers. It does not for a shadow
// limit.
func (l *Limit) ReadsLeft() bool { return l.Left.IsPlace() && !l.Shadow }

// LeftSign identifies the settings that an excess of the limit depends on: if they change, the excess ends. It is "" if
// no answer says what is left.
func (l *Limit) LeftSign() string {
	if !l.ReadsLeft() {
		return ""
	}
	sign := l.Left.Header + "/" + l.LeftUntil.Header
	switch l.Kind() {
	case KindRate:
		sign += fmt.Sprintf("/%d/%s/%d/%s", l.Rate.Count, l.Rate.Per, l.Rate.Burst, l.Rate.Counted())
	case KindQuota:
		sign += fmt.Sprintf("/%d/%s", l.Quota.Count, l.Quota.by())
	case KindBudget, KindInFlight: // no answer says what is left of them
	}
	return sign
}

// Period returns the time in which a limit's units count: 28 days for a month, 0 for calls in flight.
func (l *Limit) Period() time.Duration {
	switch l.Kind() {
	case KindRate:
		return l.Rate.Per
	case KindQuota:
		return l.Quota.Length()
	case KindBudget:
		return l.Budget.Length()
	case KindInFlight:
	}
	return 0
}

// Spare returns the number of units that the vendor allows and weir leaves unused because of headroom. slack is the
// number of units by which an answer may be below weir's count although only weir uses the account: a full token bucket
// gets no tokens while a call is late.
func (r Rules) Spare(l Limit) (spare, slack int64) {
	r = r.By(&l)
	switch l.Kind() {
	case KindRate:
		rate := *l.Rate
		if rate.Counted() == ByTokens {
			spare = rate.Burst - r.Lowered(rate.Burst)
			return spare, max(0, int64(ceil(r.late(rate)))-(rate.Burst-spare-r.Burst(rate)))
		}
		spare = max(0, rate.Count-max(r.Lowered(rate.Count), rate.Burst))
	case KindQuota:
		spare = l.Quota.Count - r.Lowered(l.Quota.Count)
	case KindBudget, KindInFlight: // no answer says what is left of them
	}
	return spare, 0
}

// excess is what the vendor counts of a limit and weir does not. The zero value is no excess.
type excess struct {
	units  int64  // that count as used
	until  Micros // when it ends: it does not hold slots from then on
	room   int64  // units that may be granted before until; unused for a sliding quota
	serial int64  // answers to calls granted up to this one are ignored
}

// end ends the excess.
func (x *excess) end() { *x = excess{serial: x.serial} }

// take counts units granted at a slot.
func (x *excess) take(at Micros, units int64) {
	if at < x.until {
		x.room -= units
	}
}

// short reports whether the excess lets fewer than units pass by the time reach.
func (x *excess) short(now, reach Micros, units int64) bool {
	return now < x.until && reach < x.until && units > x.room
}

// holds returns the units of the excess if a call with the slot at waits for its end; else 0.
func (x *excess) holds(now, at Micros) int64 {
	if now < x.until && at == x.until {
		return x.units
	}
	return 0
}

// earliest returns the first time, not before at, at which cost units fit by weir's count and by the vendor's.
func (l *sharedLimit) earliest(at Micros, cost int64) Micros {
	s, x := l.meter.earliest(at, cost), &l.excess
	if s >= x.until {
		return s
	}
	m, slides := l.meter.(*slidingMeter)
	switch {
	case !slides && cost <= x.room:
		return s
	case slides && cost+x.units <= m.count:
		return min(x.until, m.earliest(s, cost+x.units))
	}
	return x.until
}

// advance drops units of a sliding quota that no longer count.
func (l *sharedLimit) advance(now Micros) {
	if m, ok := l.meter.(*slidingMeter); ok {
		had := m.sum
		m.advance(now)
		l.freed += had - m.sum
	}
}

// gaveBack notes that units of a grant count no more. units is negative for an overage.
func (l *sharedLimit) gaveBack(g *Grant, units int64) {
	l.freed += max(0, units)
	if g.Serial > l.excess.serial { // else the grant was in the vendor's figure
		l.excess.take(g.At, -units)
	}
}

// heed changes the excess by what the answer to the call g says is left. It must be called after the call's costs were
// corrected.
func (l *sharedLimit) heed(now Micros, g *Grant, left Left, count Count) {
	x, since, freed := &l.excess, l.taken-count.Taken, l.freed-count.Freed
	if !left.Valid || g.Serial <= x.serial || since < 0 || freed < 0 || !l.ReadsLeft() {
		return
	}
	period := Micros(ceilMicros(l.Period()))
	until := g.At + period
	if m, ok := l.meter.(*quotaMeter); ok {
		present := m.at(now)
		if !present.holds(g.At) {
			return // it may be about an earlier period
		}
		until = present.end
	}
	if left.Until != 0 {
		until = min(left.Until, max(until, now+period))
	}
	if until <= now {
		return // it was about a period that is over
	}
	x.serial = g.Serial
	begun := now < x.until
	told := min(left.Until, until) // 0 if the answer does not say
	if !begun {
		told = min(told, left.Least)
	}
	units, free := max(0, left.Units-l.spare), max(0, l.free(now, g.At, told)-freed)
	over := free
	if begun {
		over += since
	}
	if over <= units+l.slack {
		x.end()
		return
	}
	x.units, x.until, x.room = free+since-units, until, units-since
}

// free returns how many units weir's own count would still grant of a quota, or of a rate before until. If until is 0,
// and for a token bucket, free returns what startAt returns for the slot at.
func (l *sharedLimit) free(now, at, until Micros) int64 {
	switch m := l.meter.(type) {
	case *rateMeter:
		if until != 0 && m.window > 0 {
			return m.startsBefore(now, until)
		}
		return m.startAt(at)
	case *quotaMeter:
		return m.count - m.usedIn(m.at(now))
	case *slidingMeter:
		return m.count - m.sum
	}
	return 0
}

// hair is the part of a unit that startsBefore and startAt may lose by floating point.
const hair = 1e-6

// startsBefore returns how many units the rate grants at slots before until.
func (m *rateMeter) startsBefore(now, until Micros) int64 {
	if until <= now {
		return 0
	}
	n := float64(until-max(now, m.tat))/m.interval.micros() - hair
	return max(0, m.burst+int64(ceil(max(-maxCost, n)))-1)
}

// startAt returns how many units the rate would grant at a past slot if it counted, at that time, all units granted
// since.
func (m *rateMeter) startAt(at Micros) int64 {
	owed := float64(max(0, m.tat-at))/m.interval.micros() - hair
	return max(0, m.burst-int64(ceil(min(maxCost, owed))))
}

// counts returns what the limits have counted, the grant just committed included; nil if no answer says what is left.
func (e *engine) counts() []Count {
	if !e.heeds {
		return nil
	}
	counts := make([]Count, len(e.rules.Shared))
	for i := range e.limits {
		if l := &e.limits[i]; l.ReadsLeft() {
			counts[l.at] = Count{l.taken, l.freed}
		}
	}
	return counts
}

// inheritExcess takes over the excess of the limit of the same name if the excess depends on nothing that has changed.
func (l *sharedLimit) inheritExcess(old *sharedLimit) {
	l.freed = old.freed
	if l.LeftSign() == old.LeftSign() {
		l.excess = old.excess
	}
}

// ExcessSnapshot is the excess of a limit in a Snapshot.
type ExcessSnapshot struct {
	Of    string `json:"of"` // Limit.LeftSign
	Units int64  `json:"units"`
	Until Micros `json:"until"`
	Room  int64  `json:"room"`
}

// snapshotExcess returns the excess as it will be if units more are granted by until. It returns nil if there is no
// excess.
func (l *sharedLimit) snapshotExcess(now, until Micros, units int64) *ExcessSnapshot {
	x := &l.excess
	if now >= x.until {
		return nil
	}
	if m, ok := l.meter.(*rateMeter); ok && units > 0 {
		units = m.startsBefore(now, until+1)
	}
	return &ExcessSnapshot{Of: l.LeftSign(), Units: x.units, Until: x.until, Room: x.room - units}
}

// restoreExcess restores the excess of a snapshot, unless the limit's settings have changed since. ahead is how far the
// clock of the snapshot was ahead of this process's clock.
func (l *sharedLimit) restoreExcess(s *ExcessSnapshot, ahead Micros) {
	if s != nil && s.Of == l.LeftSign() {
		l.excess.units, l.excess.until, l.excess.room = s.Units, s.Until-ahead, s.Room
	}
}
