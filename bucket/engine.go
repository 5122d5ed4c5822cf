package bucket

import (
	"maps"
	"slices"
)

// engine is the whole state of one api's limits, and the pure core of Memory. Time comes in as an argument; the engine
// locks nothing and reads nothing from outside.
type engine struct {
	rules     Rules
	intervals map[Rate]pace
	rate      Rate // the rate of the last ask, with its interval
	spacing   pace
	shared    []sharedLimit
	orders    Orders
	clock     Micros  // the latest time seen
	ahead     Micros  // by how much calendars are ahead of it
	asked     int64   // number of asks so far; each has MaxWant serials
	claims    *claims // nil if no checkpoints are kept
	sums      bool    // FillIn will set what new limits have missed
	heeds     bool    // answers say what is left of a limit
	applied   int64   // changes of rules so far
	keys      keyTable
	turning   turning
	arrived   Micros // latest time at which the call with the latest slot arrives
	permits   permits
	lines     lines // of replicas that use this engine together

	pool       *engine    // counts the limits of the api's account; nil without one
	limits     []placed   // all limits of a call: shared, and those of the pool
	seen       int64      // the pool.applied for which limits was built
	behind     bool       // these rules do not say what a call takes of some limit of the pool
	name       string     // the api's name, set once it has had an account
	departures departures // from pools that the engine has left

	// Of a pool:
	members map[string]bool   // the apis whose stores count in the pool
	left    map[string]Micros // when each former member left the pool
	awaits  bool              // an api of the account is not a member yet
	version int64             // the largest Rules.Version of a member so far
	// stranger says that the api which brings the next rules may have been called without the pool.
	stranger bool
}

// sharedLimit is one of Rules.Shared with its state.
type sharedLimit struct {
	Limit
	capacity int64 // the largest cost that can pass
	meter    meter // nil for an in-flight limit, which is counted by the permits
	inFlight int64
	holds    int64 // how many calls a shadow limit would have held
	taken    int64 // units of all grants so far
	freed    int64 // units that count no more: given back, or too old for a sliding quota
	top      int64 // units that the last stored snapshot covers, if checkpoints are kept
	largest  int64 // the largest cost that waited for a snapshot
	bound    bool  // the count contains a bound of what former processes used, not the exact use
	partial  bool  // the count has missed calls, and the limit grants nothing until FillIn has added them
	since    int64 // engine.applied when the count began to miss calls
	spare    int64 // units that the vendor allows and weir never uses
	slack    int64 // by how many units an answer may be below weir's count without an excess (Rules.Spare)
	excess   excess
}

// microsPerAsk is how many microseconds an ask must take on average, so that serials never repeat after a restart.
const microsPerAsk = 32

// maxIntervals bounds the intervals kept in memory. Beyond it all of them are dropped and computed again.
const maxIntervals = 1024

// tick moves the clock on; it never goes back.
func (e *engine) tick(now Micros) Micros {
	e.clock = max(e.clock, now)
	return e.clock
}

// setAhead sets by how much calendars are ahead of the clock, and moves their periods.
func (e *engine) setAhead(now, ahead Micros) {
	now = e.tick(now)
	if ahead == e.ahead {
		return
	}
	e.ahead = ahead
	for i := range e.shared {
		if m, ok := e.shared[i].meter.(*quotaMeter); ok {
			m.setAhead(ahead)
			m.turnBack(now)
		}
	}
}

// check returns an error if an ask is malformed. It grants nothing.
func (e *engine) check(a *Ask) error {
	if err := a.validate(len(e.rules.Shared)); err != nil {
		return err
	}
	_, err := e.pace(a.Limits.Rate)
	return err
}

// pace returns Rules.pace from a cache. It validates a rate that is not in the cache.
func (e *engine) pace(r Rate) (pace, error) {
	if r == e.rate && r.Count > 0 { // the zero rate stands for "none yet"
		return e.spacing, nil
	}
	if p, ok := e.intervals[r]; ok {
		e.rate, e.spacing = r, p
		return p, nil
	}
	if err := e.rules.validateRate(r); err != nil {
		return pace{}, err
	}
	if len(e.intervals) >= maxIntervals {
		clear(e.intervals)
	}
	p := e.rules.pace(r)
	e.intervals[r] = p
	return p, nil
}

// reserveAll answers the asks of one round. Each ask must have passed check.
func (e *engine) reserveAll(now Micros, asks []Ask) []Answer {
	now = e.follow(now)
	if len(asks) > 0 && asks[0].Line != nil {
		lines := e.standing()
		lines.begin(now, asks[0].Line, Micros(ceilMicros(asks[0].Horizon)))
		defer func() { lines.end(now, len(asks)) }()
	}
	answers := make([]Answer, len(asks))
	for i := range asks {
		answers[i] = e.reserve(now, &asks[i])
	}
	return answers
}

// reserve answers one ask.
func (e *engine) reserve(now Micros, a *Ask) Answer {
	now = e.tick(now)
	e.expire(now)
	for i := range e.limits {
		e.limits[i].advance(now)
	}
	own, err := e.pace(a.Limits.Rate)
	if err != nil {
		panic("bucket: reserve of an unchecked ask: " + err.Error())
	}
	state, place := e.keys.open(a.Key, now, e.turning.memory)
	key := &state
	e.turning.open(a.Key, key, now, e.arrived, own)
	if a.Floor > key.end() {
		key.gcra, key.last = gcra{tat: min(a.Floor, maxMicros)}, 0
	}
	e.count()
	lines, ans := e.standing(), Answer{Now: now}
	for i := range a.Want {
		at, wait := e.slot(now, key, own.burst, a)
		if lines.own != nil {
			e.inTurn(now, at, a, &wait)
		}
		if wait.Until != 0 || wait.Never {
			ans.Wait = wait
			break
		}
		serial, former := e.asked*MaxWant+int64(i), key.last
		e.commit(at, serial, key, a)
		if ans.Grants == nil {
			ans.Grants = make([]Grant, 0, a.Want)
		}
		ans.Grants = append(ans.Grants, Grant{At: at, TAT: key.end(), Serial: serial, Before: former, Counts: e.counts()})
	}
	e.keys.store(place, key)
	if lines.own != nil {
		ans.Elsewhere, ans.Whole, ans.Part = lines.elsewhere(a.Tenant, a.Priority), lines.whole(a.Priority), lines.part()
	}
	return ans
}

// slot finds the earliest time at which every limit lets one call of the ask pass, or returns why there is none within
// the horizon. burst is the key's own. slot changes nothing.
//
// Every limit moves the time only forward. So slot repeats until no limit moves it any more, and ends at the earliest
// common time.
func (e *engine) slot(now Micros, key *keyState, burst int64, a *Ask) (Micros, Wait) {
	switch {
	case e.behind || e.pool != nil && e.pool.awaits:
		return 0, Wait{Limit: OwnCheckpoint, Until: now + permitPoll}
	case e.adding() || e.pool != nil && e.pool.adding() || e.departures.open():
		return 0, Wait{Limit: OwnCheckpoint, Until: now + boundPoll}
	}
	for i := range e.limits {
		if l := &e.limits[i]; a.cost(l.at) > l.capacity && !l.Shadow {
			return 0, Wait{Limit: l.Name, Never: true, Exhausted: l.onExhausted()}
		}
	}
	reach := now + Micros(ceilMicros(a.Horizon))
	at, binding := key.slot(now, key.interval, burst, 1), -1
	var before Micros // the time before the binding limit moved it
	for moved := true; moved && at <= reach; {
		moved = false
		for i := range e.limits {
			l := &e.limits[i]
			cost := a.cost(l.at)
			if l.meter == nil || l.Shadow || cost == 0 {
				continue
			}
			if s := l.earliest(at, cost); s > at {
				before, at, binding, moved = at, s, i, true
			}
		}
	}
	if at > reach {
		w := Wait{Limit: OwnRate, Until: max(now+1, at-(reach-now))}
		if binding >= 0 {
			l := &e.limits[binding]
			w.Limit, w.Exhausted, w.Excess = l.Name, l.exhausted(before, at, a.cost(l.at)), l.excess.holds(now, at)
		}
		if binding >= 0 && e.limits[binding].bound { // perhaps the calls behind the bound were never made
			w = Wait{Limit: OwnCheckpoint, Until: min(w.Until, now+boundPoll)}
		}
		return 0, w
	}
	for i := range e.limits {
		if l := &e.limits[i]; l.inFlight > 0 && !l.Shadow && l.of.permits.all(now) >= l.inFlight {
			return 0, Wait{Limit: l.Name, Until: now + permitPoll}
		}
	}
	if e.unclaimed(at, a) {
		return 0, Wait{Limit: OwnCheckpoint, Until: now + permitPoll}
	}
	return at, Wait{}
}

// commit charges one call at its slot to every limit. It charges a shadow limit only if that limit would have let the
// call pass.
func (e *engine) commit(at Micros, serial int64, key *keyState, a *Ask) {
	key.take(at, key.interval, 1)
	key.last = serial
	e.arrives(at)
	for i := range e.limits {
		l := &e.limits[i]
		cost := a.cost(l.at)
		if l.Shadow && l.wouldHold(at, cost, l.of.permits.open()) {
			l.holds++
			continue
		}
		if l.meter != nil && cost > 0 {
			l.meter.take(at, cost, serial)
			l.excess.take(at, cost)
			l.taken += cost
		}
	}
	for of := range e.both {
		of.permits.take(serial, at+of.rules.LeaseMicros())
	}
}

// wouldHold reports whether the limit would hold a call at this time if it were not a shadow limit.
func (l *sharedLimit) wouldHold(at Micros, cost, open int64) bool {
	if l.meter == nil {
		return open >= l.inFlight
	}
	return cost > l.capacity || cost > 0 && l.meter.earliest(at, cost) > at
}

// settle ends one grant.
func (e *engine) settle(now Micros, u *Use) {
	now = e.follow(now)
	if u.Hold > 0 {
		for of := range e.both {
			of.permits.hold(e.holderIn(of), u.Grant.Serial, now+Micros(ceilMicros(u.Hold)))
		}
		return
	}
	if u.Returned && u.Grant.Serial > 0 {
		e.keys.update(u.Key, func(key *keyState) {
			if key.last == u.Grant.Serial {
				key.untake(key.interval, 1)
				key.last = u.Grant.Before
			}
		})
	}
	for of := range e.both {
		of.permits.expire(now)
		if open := of.permits.settle(e.holderIn(of), u.Grant.Serial); len(of.shared) > 0 {
			e.settleIn(of, now, u, open)
		}
	}
}

// settleIn gives back, or corrects, what the grant took from the limits that one engine counts: this engine or its
// pool. open says whether the grant's permit was open there.
func (e *engine) settleIn(of *engine, now Micros, u *Use, open settled) {
	for i := range e.limits {
		l := &e.limits[i]
		if l.of != of {
			continue
		}
		at, ok := e.orders.Place(u, l.Name, l.at)
		if l.meter == nil || l.Shadow || !ok || at < 0 {
			continue
		}
		l.advance(now)
		cost := costAt(u.Costs, at)
		switch {
		case u.Returned && open == wasOpen:
			l.meter.giveBack(u.Grant.At, cost, u.Grant.Serial)
			l.gaveBack(&u.Grant, cost)
		case u.Returned || at >= len(u.Actual):
		case u.Actual[at] > cost || open == wasOpen:
			actual := min(maxCost, max(0, u.Actual[at]))
			l.meter.correct(now, u.Grant.At, cost, actual, u.Grant.Serial)
			l.gaveBack(&u.Grant, cost-actual)
		}
		if open == wasOpen && !u.Returned && at < len(u.Left) && at < len(u.Grant.Counts) {
			l.heed(now, &u.Grant, u.Left[at], u.Grant.Counts[at])
		}
	}
}

// apply puts rules in force. On an error it changes nothing.
func (e *engine) apply(now Micros, rules Rules) error {
	if err := rules.Validate(); err != nil {
		return err
	}
	now = e.tick(now)
	if e.asked == 0 {
		e.asked = int64(now) / microsPerAsk // keeps serials above those of a former process
	}
	e.applied++
	counted, grown := e.counted(rules), e.grown(&rules)
	e.stranger = false
	if grown {
		e.arrived = max(e.arrived, now+joinAhead)
	}
	if e.isPool() { // an api that the next rules name has come back
		maps.DeleteFunc(e.left, func(api string, _ Micros) bool { return slices.Contains(rules.APIs(""), api) })
	}
	next := make([]sharedLimit, len(counted))
	for i, l := range counted {
		next[i] = newSharedLimit(rules, l, e.ahead)
		next[i].partial, next[i].since = e.sums && l.accounted(), e.applied
		next[i].owe(now, e.arrived, e.asked)
		next[i].excess.serial = (e.asked+1)*MaxWant - 1 // earlier calls were made under other rules
		for j := range e.shared {
			if old := &e.shared[j]; old.Name == l.Name {
				next[i].holds, next[i].taken, next[i].top = old.holds, old.taken, old.top
				if grown && l.Rate != nil {
					continue // owe has charged it for the new api's earlier calls
				}
				next[i].inherit(now, e.arrived, old, e.asked)
				next[i].inheritExcess(old)
				if old.accounted() && !grown {
					next[i].partial, next[i].since = old.partial && l.accounted(), old.since
				}
			}
		}
	}
	if e.arrived == 0 { // nothing was called yet
		e.turning.memory, e.turning.least = rules.Memory(), rules.Memory()
	} else if rules.KeyPaces() != e.rules.KeyPaces() {
		e.turning.turn(now, e.arrived, rules.Memory())
	}
	e.noteDropped(rules)
	e.orders.Change((e.asked+1)*MaxWant, e.rules.Shared)
	e.rules, e.shared, e.intervals, e.rate, e.seen = rules, next, map[Rate]pace{}, Rate{}, unlinked
	e.heeds = slices.ContainsFunc(rules.Shared, func(l Limit) bool { return l.ReadsLeft() })
	e.muster()
	return nil
}

// newSharedLimit returns the idle state of a validated limit.
func newSharedLimit(r Rules, l Limit, ahead Micros) sharedLimit {
	s := sharedLimit{Limit: l, capacity: r.Capacity(l)}
	s.spare, s.slack = r.Spare(l)
	r = r.By(&l)
	switch l.Kind() {
	case KindRate:
		s.meter = &rateMeter{tally: tally{pace: r.pace(*l.Rate)}}
	case KindQuota:
		s.meter = newWindowMeter(r, *l.Quota, ahead)
	case KindBudget:
		s.meter = newWindowMeter(r, l.Budget.Quota, ahead)
	case KindInFlight:
		s.inFlight = r.Lowered(l.InFlight)
	}
	return s
}

func newWindowMeter(r Rules, q Quota, ahead Micros) meter {
	if q.Window == Sliding {
		return newSlidingMeter(r, q)
	}
	return newQuotaMeter(r, q, ahead)
}

// owe charges a new rate with all units that calls until last may have taken.
func (l *sharedLimit) owe(now, last Micros, asked int64) {
	if m, ok := l.meter.(*rateMeter); ok && last > 0 {
		m.tally = m.unknown(now, last, coarse(last))
		m.keepRefunds(asked)
	}
}

// inherit copies the count of the limit of the same name, if both count the same kind of thing.
func (l *sharedLimit) inherit(now, arrived Micros, old *sharedLimit, asked int64) {
	switch to := l.meter.(type) { // if the kind changes, a bound stays for good
	case *rateMeter:
		from, ok := old.meter.(*rateMeter)
		if !ok || arrived == 0 || old.Shadow && !l.Shadow { // old has not counted every call
			return
		}
		if from.pace == to.pace {
			*to = *from
			return
		}
		pace := to.pace
		to.tally = from.tally
		to.carry(now, arrived, pace)
		to.keepRefunds(asked)
	case *quotaMeter:
		switch from := old.meter.(type) {
		case *quotaMeter:
			to.carry(now, from, from.quota.by() == to.quota.by())
			l.bound = old.bound && l.counted()
		case *slidingMeter:
			for _, e := range from.entries {
				to.adopt(now, e.end, e.units)
			}
		}
	case *slidingMeter:
		switch from := old.meter.(type) {
		case *quotaMeter:
			to.adopt(now, from.period, from.used)
		case *slidingMeter:
			old.advance(now)
			to.gone = from.gone
			for _, e := range from.entries[:from.former] {
				to.take(e.end, e.units, 0)
			}
			to.former, l.bound = len(to.entries), old.bound && l.counted()
			for _, e := range from.entries[from.former:] {
				to.take(e.end, e.units, 0)
			}
		}
	}
}

// onExhausted returns what happens to a job when the budget is spent; "" for other limits.
func (l *sharedLimit) onExhausted() Exhausted {
	if l.Budget == nil {
		return ""
	}
	return l.Budget.OnExhausted
}

// exhausted returns what happens to a job if the limit delayed its call from one time to another. It returns "" if the
// budget is not spent, and has only kept the call away from the edge of a period.
func (l *sharedLimit) exhausted(from, to Micros, cost int64) Exhausted {
	if m, ok := l.meter.(*quotaMeter); ok && !m.spent(from, to, cost) {
		return ""
	}
	return l.onExhausted()
}

// cost returns the units that a call takes from shared limit i.
func (a *Ask) cost(i int) int64 { return costAt(a.Costs, i) }

func costAt(costs []int64, i int) int64 {
	if costs == nil {
		return 1
	}
	return costs[i]
}
