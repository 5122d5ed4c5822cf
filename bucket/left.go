package bucket

import "time"

// What the vendor says is left.
//
// An answer may say how many units of a limit were left when the vendor counted its call, and when the vendor's count
// begins anew. If that is less than weir has left, other programs use the account too, or the vendor allows less than
// is configured. The limit then has an excess: units that the vendor counts and weir does not. It counts as used until
// the vendor's count begins anew.
//
// # The rule
//
// Let c be the call, L the units that its answer says are left, less the headroom, and U when the vendor's count begins
// anew. Let F be what weir would still grant until U, after everything that was granted so far, and S the units that
// were granted after c.
//
//   - Calls count at the vendor in the order of their grants: L contains the calls that were granted before c, and none
//     that was granted after it.
//   - An excess begins only if F > L: even if L contains every call that was granted so far, less is left than weir
//     has. Of a token bucket L may be lower by the tokens that come back while a call may be late.
//   - It is F + S - L units, and before U at most L - S more units are granted. A sliding quota gets its own old units
//     back meanwhile, as at the vendor: it counts F + S - L units more as used.
//   - The answer of the call that was granted last decides. It replaces the former excess. The excess ends if F + S <=
//     L, or at U. Answers of earlier grants are ignored, in whatever order they arrive.
//
// U is at most one period of the limit away. If the answer does not say U, it is the end of the present period of a
// calendar or fixed quota, and for other limits one period after c's slot.
//
// # What holds
//
//  1. It never grants more: a slot is within the meter and within the excess.
//  2. It is never negative: it begins with F + S - L >= F - L > 0, and stays only while F + S - L > 0. It is at most
//     what the vendor allows, less what is left, less what was granted up to c, which has every call that was answered
//     when c was sent.
//  3. It does not drift: the excess is computed from one answer, and from no former excess.
//  4. If only weir uses the account, there is none. Every unit that the vendor counts was granted by now, and with what
//     was granted in the vendor's period, F is within the limit: so F <= L. Of a rate with a known U the period is the
//     window that ends at U, in which slots and F together are at most the limit's (pace.go). Answers say U in whole
//     seconds, and some time before they arrive: until there is an excess, F ends at the earliest time that U may be.
//     Otherwise F is what a rate would let start at c's slot, with all later grants charged. Of a sliding quota F
//     counts what counted at c's slot, so units that are too old since then do not look like another program's.
//  5. The vendor refuses weir no more than was under way. Let v be when it counted c. From v to U weir's calls take S
//     of grants before the answer, and at most L - S of grants after it, and the calls that were granted before c and
//     that the vendor counts after v. Those were under way at v. Beyond that a call is refused only for what other
//     programs take after v, and for calls under way when the first answer comes that says so. Of a rate with a known U
//     that answer must say less than F by more than the rate lets start while U is uncertain.
//  6. What it withholds too much is at most the units of calls that were granted after c and counted before it. They
//     were under way too, and the answer of the call that was granted last ends that.
//
// For a rate whose U no answer says, and for a token bucket, F is only what may start at once: they get units back all
// the time, and from an answer that says 0 nothing follows for later.

// Left is what the answer to a call says of one limit.
type Left struct {
	Told  bool  // the rest is valid
	Units int64 // left when the vendor counted the call
	// Until is when the vendor's count begins anew at the latest, and Least when it does at the earliest, by the store's
	// clock. Both are 0 if the answer does not say.
	Until, Least Micros
}

// Count is how much a store had counted of one limit by a grant, the grant included.
type Count struct {
	Taken  int64 // of all grants so far
	Window int64 // of a sliding quota: what counted at the grant
}

// ReadsLeft reports whether answers say what is left of the limit. A shadow limit does not ask.
func (l *Limit) ReadsLeft() bool { return l.Left.IsPlace() && !l.Shadow }

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

// Spare returns how many of the units that the vendor allows weir leaves unused because of headroom. slack is how much
// less than weir has left an answer may say although only weir uses the account: tokens that a full bucket did not get
// while a call was late.
func (r Rules) Spare(l Limit) (spare, slack int64) {
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

// excess is what the vendor counts of a limit and weir does not. The zero value is none.
type excess struct {
	units  int64  // that count as used
	until  Micros // slots from then on are not concerned
	room   int64  // units that may be granted before until; unused for a sliding quota
	serial int64  // of the call whose answer decided last
}

// end ends the excess. Answers of earlier grants stay ignored.
func (x *excess) end() { *x = excess{serial: x.serial} }

// take counts units granted at a slot.
func (x *excess) take(at Micros, units int64) {
	if at < x.until {
		x.room -= units
	}
}

// giveBack counts units less for a grant that was not in the vendor's figure; units is negative for an overage.
func (x *excess) giveBack(g *Grant, units int64) {
	if g.Serial > x.serial {
		x.take(g.At, -units)
	}
}

// short reports whether the excess leaves less than units before a time.
func (x *excess) short(now, reach Micros, units int64) bool {
	return now < x.until && reach < x.until && units > x.room
}

// ends reports whether a call waits for the end of the excess: at is the slot that it would get.
func (x *excess) ends(now, at Micros) bool { return now < x.until && at == x.until }

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

// heed takes in what the answer to the call g says is left. It must come after the call's own correction.
func (l *sharedLimit) heed(now Micros, g *Grant, left Left, count Count) {
	x, since := &l.excess, l.taken-count.Taken
	if !left.Told || g.Serial <= x.serial || since < 0 || !l.ReadsLeft() {
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
	if !begun {
		left.Until = min(left.Until, left.Least)
	}
	units, free := max(0, left.Units-l.spare), l.free(now, g, left, count)
	if counts := units + l.slack; free <= counts && (!begun || free+since <= counts) {
		x.end()
		return
	}
	x.units, x.until, x.room = free+since-units, until, units-since
}

// free returns what weir's own count would still grant: F at the head of this file.
func (l *sharedLimit) free(now Micros, g *Grant, left Left, count Count) int64 {
	switch m := l.meter.(type) {
	case *rateMeter:
		if left.Until != 0 && m.window > 0 {
			return m.startsBefore(now, min(left.Until, now+Micros(ceilMicros(l.Period()))))
		}
		return m.startAt(g.At)
	case *quotaMeter:
		return max(0, m.count-m.usedIn(m.at(now)))
	case *slidingMeter:
		return max(0, m.count-count.Window-(l.taken-count.Taken))
	}
	return 0
}

// hair is the part of a unit that the floating point of startsBefore and startAt may lose.
const hair = 1e-6

// startsBefore returns how many units the rate grants at slots before until.
func (m *rateMeter) startsBefore(now, until Micros) int64 {
	n := float64(until-max(now, m.tat))/m.interval.micros() - hair
	return max(0, m.burst+int64(ceil(max(-maxCost, n)))-1)
}

// startAt returns how many units the rate would grant at a past slot, if all that was granted since counted by then.
func (m *rateMeter) startAt(at Micros) int64 {
	owed := float64(max(0, m.tat-at))/m.interval.micros() - hair
	return max(0, m.burst-int64(ceil(min(maxCost, owed))))
}

// counts returns what the limits have counted, for the grant just committed; nil if no answer says what is left.
func (e *engine) counts() []Count {
	if !e.heeds {
		return nil
	}
	counts := make([]Count, len(e.shared))
	for i := range e.shared {
		l := &e.shared[i]
		if !l.ReadsLeft() {
			continue
		}
		counts[i].Taken = l.taken
		if m, ok := l.meter.(*slidingMeter); ok {
			counts[i].Window = m.sum
		}
	}
	return counts
}

// inheritExcess takes over the excess of the limit of the same name, if both count the same way.
func (l *sharedLimit) inheritExcess(old *sharedLimit) {
	if l.ReadsLeft() && l.Kind() == old.Kind() && l.slides() == old.slides() {
		l.excess = old.excess
	}
}

func (l *sharedLimit) slides() bool {
	_, slides := l.meter.(*slidingMeter)
	return slides
}

// ExcessSnapshot is the excess of a limit in a Snapshot.
type ExcessSnapshot struct {
	Units int64  `json:"units"`
	Until Micros `json:"until"`
	Room  int64  `json:"room"`
}

// snapshotExcess returns the excess with units more granted by until, nil if there is none.
func (l *sharedLimit) snapshotExcess(now, until Micros, units int64) *ExcessSnapshot {
	x := &l.excess
	if now >= x.until {
		return nil
	}
	if m, ok := l.meter.(*rateMeter); ok && units > 0 {
		units = m.startsBefore(now, until+1)
	}
	return &ExcessSnapshot{Units: x.units, Until: x.until, Room: x.room - units}
}

// restoreExcess restores the excess of a snapshot whose clock was ahead of this one by ahead.
func (l *sharedLimit) restoreExcess(s *LimitSnapshot, ahead Micros) {
	slid, rate := s.By == "", s.P > 0 // a rate has a pace, and a quota with periods names them
	if s.Excess == nil || !l.ReadsLeft() || rate != (l.Rate != nil) || !rate && slid != l.slides() {
		return
	}
	l.excess = excess{units: s.Excess.Units, until: s.Excess.Until - ahead, room: s.Excess.Room}
}
