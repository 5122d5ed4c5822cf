package bucket

import (
	"slices"
	"sync/atomic"
	"time"
)

// Checkpoints.
//
// State that exists only in the process is lost when the process dies. A key's own bucket comes back through Ask.Floor,
// from the ledger. The shared limits come back from the last Snapshot, which the worker stores somewhere durable. A
// snapshot is older than the crash, so it claims ahead: it says what may have been used by Until. Until Saved reports
// that a snapshot is stored, the engine grants nothing that only this snapshot would cover. So restored limits may
// count too much, never too little:
//
//	s := m.Checkpoint(2 * time.Second) // claims two seconds and a part of every quota
//	...store s...                      // meanwhile the claims of the one before still hold
//	m.Saved(s)                         // now up to s.Until may be granted
//
// Make one every second, and at once when an answer waits for the limit "checkpoint". What a crash costs:
//
//	a rate       its burst: it is empty at Until, so a call of cost n waits until n intervals later, and the whole burst is
//	             there burst × interval later. For a slow rate that is hours: 1 per 6 h grants nothing for 6 h
//	in-flight    one lease
//	a quota      at most a 64th, one call, or the use of eight times ahead, whichever is largest: until Correct
//	an excess    what may be granted until the next snapshot counts as granted. One that an answer reported after the
//	             snapshot is gone until the next answer (left.go)
//
// Checkpoint(0) is the last one of an orderly stop: it is exact, and nothing is granted after it.
//
// No claim covers an overage that a response reported and that is not in a stored snapshot when the process dies. The
// ledger has it.

// Snapshot is the long-lived state of one api's shared limits. As JSON it has a few hundred bytes a limit, and a few
// kilobytes for a sliding quota.
type Snapshot struct {
	Made  Micros          `json:"made"`
	Until Micros          `json:"until"`           // no slot after this was granted
	Late  Micros          `json:"late,omitempty"`  // how long after Until a call may still arrive
	Open  int64           `json:"open,omitempty"`  // calls that may be under way
	Lease Micros          `json:"lease,omitempty"` // until when they may be under way
	Limit []LimitSnapshot `json:"limits,omitempty"`
	APIs  []string        `json:"apis,omitempty"` // of an account: the apis whose calls the limits count

	dropped int64 // claims.dropped when it was made
}

// LimitSnapshot is one limit's state.
type LimitSnapshot struct {
	Name string `json:"name"`
	// For a rate, TAT is when its bucket is empty at the latest. P, Q, Burst, Window and Late are the pace in which it
	// was counted. The rate has not counted all calls that arrived until Since.
	TAT    Micros `json:"tat,omitempty"`
	P, Q   int64  `json:",omitempty"`
	Burst  int64  `json:"burst,omitempty"`
	Window Micros `json:"window,omitempty"`
	Late   Micros `json:"late,omitempty"`
	Since  Micros `json:"since,omitempty"`
	// Shadow says that the limit was a shadow limit. A rate has then not counted every call.
	Shadow bool `json:"shadow,omitempty"`
	// For a quota or budget, By says how its periods lie. Start and End are those of the present period. Used may be
	// used in the present period, and Next in the next one.
	By    string `json:"by,omitempty"`
	Start Micros `json:"start,omitempty"`
	End   Micros `json:"end,omitempty"`
	Used  int64  `json:"used,omitempty"`
	Next  int64  `json:"next,omitempty"`
	// Last is the latest slot in the present period. Others are periods that were counted before or lie ahead: see
	// turnback.go.
	Last   Micros          `json:"last,omitempty"`
	Others []OtherSnapshot `json:"others,omitempty"`
	// For a sliding quota, Log has pairs of time and units.
	Log [][2]int64 `json:"log,omitempty"`
	// Exact says that the use is exact. Otherwise it is an upper bound.
	Exact bool `json:"exact,omitempty"`
	// Partial says that Used or Log lacks calls: the limit came into force after them, and FillIn has not added them
	// yet.
	Partial bool `json:"partial,omitempty"`
	// Excess is what the vendor counts and weir does not.
	Excess *ExcessSnapshot `json:"excess,omitempty"`

	top int64 // what the limit may have taken in all once this is stored
}

// OtherSnapshot is the count of a quota or budget in a period other than the present one.
type OtherSnapshot struct {
	Start Micros `json:"start"`
	End   Micros `json:"end"`
	Used  int64  `json:"used"`
	Last  Micros `json:"last"`
}

// OwnCheckpoint is the Limit that a Wait names when a slot waits until a snapshot is stored.
const OwnCheckpoint = "checkpoint"

const (
	claimParts = 64 // a snapshot claims this part of a quota ahead
	claimPace  = 8  // or, if more, the quota's average for so many times the time covered: quotas are used in bursts
	logParts   = 64 // entries of a sliding quota in a snapshot
)

// claims bound the grants until the next snapshot is stored.
type claims struct {
	until Micros
	// dropped and stored count removals of limits and of a pool's apis, and changes of rates. The stored snapshot must
	// include these changes before a call is made that the former limits do not count. An api that has left a pool
	// reads the pool's stored without a lock.
	dropped int64
	stored  atomic.Int64
}

// Restore restores the state of a former process and turns checkpoints on: until the first Saved nothing is granted.
// The zero Snapshot stands for an api that was never called. Restore must come before the first Reserve.
//
// A snapshot made later than now comes from a different clock: the machine's was set back, or is slow. Restore then
// assumes that no time has passed since, and returns by how much the snapshot's clock was ahead.
func (m *Memory) Restore(s Snapshot) (ahead time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.engine.restore(m.now(), s)
}

// Checkpoint returns a snapshot that covers everything that is granted until ahead has passed. ahead is shorter than
// any period.
func (m *Memory) Checkpoint(ahead time.Duration) Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.engine.checkpoint(m.now(), ahead)
}

// Saved notes that a snapshot is stored durably. Snapshots must be stored in the order in which they were made.
func (m *Memory) Saved(s Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.engine.saved(s)
}

func (e *engine) checkpoint(now Micros, ahead time.Duration) Snapshot {
	now = e.tick(now)
	e.permits.expire(now)
	s := Snapshot{Made: now, Until: now.Add(ahead), Open: e.permits.open(), Lease: e.permits.latest}
	s.Late = max(Micros(ceilMicros(e.rules.Jitter)), e.arrived-s.Until)
	if e.claims != nil {
		s.dropped = e.claims.dropped
	}
	if e.isPool() {
		s.APIs = e.enrolled()
	}
	if ahead <= 0 {
		if e.claims == nil {
			e.claims = &claims{}
		}
		e.claims.until, s.Until = -1, now
	}
	for i := range e.shared {
		l := &e.shared[i]
		if l.inFlight > 0 && ahead > 0 {
			s.Open, s.Lease = max(s.Open, l.inFlight), s.Until+e.rules.LeaseMicros()
		}
		units := int64(0)
		if ahead > 0 && !l.Shadow { // a shadow limit holds nothing, so it needs no claim
			units = max(1, l.capacity/claimParts, l.largest, l.share(now, claimPace*s.Until-claimPace*now))
		}
		s.Limit = append(s.Limit, l.snapshot(now, s.Until, units))
	}
	if now < e.permits.gone {
		s.Open, s.Lease = min(s.Open+e.permits.ghosts, maxCost), max(s.Lease, e.permits.gone)
	}
	return s.moved(e.ahead)
}

// moved returns a copy of the snapshot with all its times shifted by the given time.
func (s Snapshot) moved(by Micros) Snapshot {
	move := func(t Micros) Micros {
		if t == 0 {
			return 0
		}
		return t + by
	}
	s.Made, s.Until, s.Lease, s.Limit = move(s.Made), move(s.Until), move(s.Lease), slices.Clone(s.Limit)
	for i := range s.Limit {
		l := &s.Limit[i]
		l.TAT, l.Since, l.Start, l.End, l.Last, l.Log = move(l.TAT), move(l.Since), move(l.Start), move(l.End), move(l.Last), slices.Clone(l.Log)
		l.Others = slices.Clone(l.Others)
		for j := range l.Others {
			o := &l.Others[j]
			o.Start, o.End, o.Last = o.Start+by, o.End+by, o.Last+by
		}
		for j := range l.Log {
			l.Log[j][0] += int64(by)
		}
		if x := l.Excess; x != nil {
			moved := *x
			moved.Until += by
			l.Excess = &moved
		}
	}
	return s
}

// share returns the part of a quota that belongs to a part of its period.
func (l *sharedLimit) share(now, part Micros) int64 {
	var period Micros
	switch m := l.meter.(type) {
	case *quotaMeter:
		p := m.at(now)
		period = p.end - p.start
	case *slidingMeter:
		period = m.life
	default:
		return 0
	}
	return int64(float64(l.capacity) * min(1, float64(part)/float64(period)))
}

// snapshot returns the limit's state as it will be at until if the limit takes units more. With 0 units the state is
// exact.
func (l *sharedLimit) snapshot(now, until Micros, units int64) LimitSnapshot {
	s := LimitSnapshot{Name: l.Name, top: l.taken + units, Exact: units == 0 && !l.bound, Partial: l.partial, Shadow: l.Shadow}
	s.Excess = l.snapshotExcess(now, until, units)
	if q := l.quota(); q != nil {
		s.By = q.by()
	}
	switch m := l.meter.(type) {
	case *rateMeter:
		s.TAT, s.P, s.Q, s.Burst, s.Window, s.Late, s.Since = m.end(), m.interval.P, m.interval.Q, m.burst, m.window, m.late, m.since
		if units > 0 {
			s.TAT = max(s.TAT, until+m.interval.times(m.burst))
		}
	case *quotaMeter:
		present := *m
		if now >= present.period.end {
			present.begin(m.at(now))
		}
		s.Start, s.End, s.Used, s.Next, s.Last = present.period.start, present.period.end, present.used+units, units, present.last
		for _, o := range present.others {
			if o.start > present.period.start {
				o.used += units
			}
			s.Others = append(s.Others, OtherSnapshot{o.start, o.end, o.used, o.last})
		}
	case *slidingMeter:
		l.advance(now)
		part := len(m.entries)/logParts + 1
		for i, e := range m.entries {
			if i%part == 0 {
				s.Log = append(s.Log, [2]int64{})
			}
			last := &s.Log[len(s.Log)-1]
			last[0], last[1] = int64(e.end), last[1]+e.units
		}
		if units > 0 {
			s.Log = append(s.Log, [2]int64{int64(until), units})
		}
	}
	return s
}

func (e *engine) saved(s Snapshot) {
	if e.claims == nil || e.claims.until < 0 {
		return
	}
	e.claims.until = max(e.claims.until, s.Until-e.ahead)
	e.claims.stored.Store(max(e.claims.stored.Load(), s.dropped))
	for i := range e.shared {
		for _, l := range s.Limit {
			if l.Name == e.shared[i].Name {
				e.shared[i].top = max(e.shared[i].top, l.top)
			}
		}
	}
}

func (e *engine) restore(now Micros, s Snapshot) time.Duration {
	now, s = e.tick(now), s.moved(-e.ahead)
	early := max(0, s.Made-now)
	s.Until -= min(early, s.Until)
	e.claims = &claims{}
	e.permits.haunt(s.Open, s.Lease-early)
	if s.Until > 0 {
		e.arrived = max(e.arrived, s.Until+s.Late)
	}
	grown := len(s.Limit) > 0 && e.isPool() && joined(s.APIs, e.rules.In.APIs)
	if grown {
		e.arrived = max(e.arrived, now+joinAhead)
		e.permits.haunt(maxCost, max(e.permits.gone, now+e.rules.LeaseMicros()))
	}
	for i := range e.shared {
		l := &e.shared[i]
		l.owe(now, e.arrived, e.asked)
		for _, old := range s.Limit {
			if old.Name == l.Name && (!grown || l.Rate == nil) {
				l.restore(now, max(s.Until, e.arrived), old, early)
			}
		}
		if grown && l.accounted() {
			l.partial, l.since = true, e.applied
		}
	}
	return Micros(0).Until(early)
}

// restore restores the state in a snapshot. The snapshot's clock was ahead of this one by ahead, but calendars follow
// the wall clock. arrived is the latest time at which the last call can have arrived.
func (l *sharedLimit) restore(now, arrived Micros, s LimitSnapshot, ahead Micros) {
	l.bound = l.counted() && !s.Exact
	l.partial = s.Partial && l.accounted()
	l.restoreExcess(s.Excess, ahead)
	switch m := l.meter.(type) {
	case *rateMeter:
		if s.P == 0 || s.Q == 0 || s.Shadow && !l.Shadow {
			return
		}
		to := m.pace
		m.tally = tally{gcra{tat: s.TAT - ahead}, pace{Interval{s.P, s.Q}, s.Burst, s.Window, s.Late}, max(0, s.Since-ahead)}
		if m.window == 0 && !s.Exact { // a call may have cost more than the burst that is claimed
			m.since = coarse(arrived)
		}
		if m.pace != to {
			m.carry(now, arrived, to)
		}
	case *quotaMeter:
		from := quotaMeter{quota: m.quota, period: span{s.Start, s.End}, used: s.Used, last: s.Last - ahead}
		for _, o := range s.Others {
			from.others = append(from.others, periodCount{span{o.Start, o.End}, o.Used, o.Last - ahead})
		}
		same := s.By == m.quota.by()
		if now >= s.End && s.End > 0 {
			from.begin(m.spanAt(s.End))
			from.used, same = from.used+s.Next, true
		}
		if s.End > 0 {
			m.carry(now, &from, same)
		}
		for _, e := range s.Log { // it was a sliding quota then
			m.adopt(now, Micros(e[0])-ahead, e[1])
		}
		m.turnBack(now)
		m.former = m.used
	case *slidingMeter:
		m.adopt(now, span{s.Start, s.End}, s.Used) // it had periods then
		for _, e := range s.Log {
			m.take(Micros(e[0])-ahead, e[1], 0)
		}
		m.former = len(m.entries)
	}
}

// unclaimed reports whether a slot would go beyond what the last stored snapshots cover.
func (e *engine) unclaimed(at Micros, a *Ask) bool {
	for of := range e.both {
		if of.outlasts(at) {
			return true
		}
	}
	for i := range e.limits {
		if l := &e.limits[i]; l.of.claims != nil && l.counted() && l.taken+a.cost(l.at) > l.top {
			l.largest = max(l.largest, a.cost(l.at))
			return true
		}
	}
	return false
}

// outlasts reports whether a slot is later than what the last stored snapshot covers.
func (e *engine) outlasts(at Micros) bool {
	switch {
	case e.claims == nil:
		return false
	case e.claims.stored.Load() < e.claims.dropped:
		return true
	}
	return len(e.shared) > 0 && at > e.claims.until
}

// counted reports whether a snapshot claims units of the limit. A rate is claimed by time.
func (l *sharedLimit) counted() bool { return !l.Shadow && (l.Quota != nil || l.Budget != nil) }
