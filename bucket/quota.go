package bucket

// Calendar and fixed quotas count units in periods that are known beforehand. The api counts a call when it arrives, by
// the api's clock. So it may count a call that was planned near a period's edge in the neighbouring period. For that
// reason no slot lies within the jitter of an edge: a call that was planned in a period arrives in it, and its period's
// count is exact.
//
// A quota has no pace: after a reset all its units may be used as fast as the other limits allow. Add a rate to the
// quota to spread the calls.

// quotaMeter is a calendar or fixed quota, or a budget. It counts one period: the latest with a slot. The first slot in
// a period closes the period before, even if another key could still use the last moments of that period. At most one
// horizon of time is lost in this way.
type quotaMeter struct {
	quota  Quota
	count  int64 // less the headroom
	guard  Micros
	period span // the period of used; zero before the first grant; longer after the calendar was set back
	used   int64
	last   Micros        // the latest slot in period
	others []periodCount // other periods that were counted, rising: see turnback.go
	former int64         // part of used: units that former processes may have used, until Correct
	near   span          // the period that at looked up last
	ahead  Micros
}

func newQuotaMeter(r Rules, q Quota, ahead Micros) *quotaMeter {
	return &quotaMeter{quota: q, count: r.Lowered(q.Count), guard: Micros(ceilMicros(r.Jitter)), ahead: ahead}
}

// spanAt returns the period that holds t, a time of the slots' clock. If the calendar is ahead of that clock, periods
// begin and end that much earlier.
func (m *quotaMeter) spanAt(t Micros) span { return m.quota.spanAt(t + m.ahead).moved(-m.ahead) }

// setAhead sets by how much the calendar is ahead of the slots' clock, and moves the periods accordingly.
func (m *quotaMeter) setAhead(ahead Micros) {
	by := m.ahead - ahead
	m.period, m.near, m.ahead = m.period.moved(by), m.near.moved(by), ahead
	for i := range m.others {
		m.others[i].span = m.others[i].moved(by)
	}
}

// at returns the period that holds t.
func (m *quotaMeter) at(t Micros) span {
	if m.period.holds(t) {
		return m.period
	}
	if !m.near.holds(t) {
		m.near = m.spanAt(t)
	}
	return m.near
}

func (m *quotaMeter) earliest(at Micros, cost int64) Micros {
	at = max(at, m.period.start)
	for {
		p := m.at(at)
		at = max(at, p.start+m.guard)
		if at < p.end-m.guard && m.usedIn(p)+cost <= m.count {
			return at
		}
		at = p.end
	}
}

// spent reports whether some period between two times has less than cost left.
func (m *quotaMeter) spent(from, to Micros, cost int64) bool {
	for from < to {
		p := m.at(from)
		if m.usedIn(p)+cost > m.count {
			return true
		}
		from = p.end
	}
	return false
}

func (m *quotaMeter) take(at Micros, cost, _ int64) {
	if p := m.at(at); p != m.period {
		m.begin(p)
	}
	m.used, m.last = m.used+cost, max(m.last, at)
	m.takeLater(cost)
}

// begin starts to count period p, and remembers the count of the period before.
func (m *quotaMeter) begin(p span) {
	m.remember()
	used, last := m.forget(p)
	m.period, m.used, m.last, m.former = p, used, last, 0
}

func (m *quotaMeter) giveBack(at Micros, cost, _ int64) {
	if m.period.holds(at) {
		m.used = max(0, m.used-cost)
	}
}

// correct counts in the period of the call's slot, as the api does. It charges an overage of a past period to the
// present one, because it is unknown in which period the api counts units that it learns of late.
func (m *quotaMeter) correct(now, at Micros, cost, actual, serial int64) {
	if actual < cost {
		m.giveBack(at, cost-actual, serial)
		return
	}
	if now >= m.period.end {
		m.begin(m.at(now))
	}
	m.used, m.last = min(int64(maxMicros), m.used+actual-cost), max(m.last, now)
	m.takeLater(actual - cost)
}

// adopt counts units that a sliding quota of the same name granted at the time at.
func (m *quotaMeter) adopt(now, at Micros, units int64) {
	if p := m.at(max(now, m.period.start)); p != m.period {
		m.begin(p)
	}
	m.last = max(m.last, at)
	if at >= m.period.start {
		m.used += units
	}
}

// carry takes over the count of the same limit under older rules. same says that the periods did not change. If they
// did (another zone, another unit), the old count goes into the new period that holds now or, if it is later, the old
// period's beginning. The count is dropped if the old period ended before that new period began. What the api counted
// before the old period is unknown here.
func (m *quotaMeter) carry(now Micros, from *quotaMeter, same bool) {
	m.period, m.used, m.last, m.former, m.others = from.period, from.used, from.last, from.former, from.others
	if same || from.period == (span{}) {
		return
	}
	m.others = nil
	if p := m.spanAt(max(now, from.period.start)); from.period.end > p.start {
		m.period = p
	}
}
