package bucket

// meter is the state of one shared limit that is counted over time. Its methods are pure: times are passed in, and the
// caller must never let them run backwards.
type meter interface {
	// earliest returns the first time, at or after at, at which cost units fit. cost is at most the limit's capacity.
	earliest(at Micros, cost int64) Micros
	// take charges cost units to the grant with that serial and the slot at; earliest(at, cost) must have returned at.
	take(at Micros, cost, serial int64)
	// giveBack undoes the take of a call that was never made, unless a later grant may have relied on it.
	giveBack(at Micros, cost, serial int64)
	// correct replaces the taken cost by the call's real cost.
	correct(now, at Micros, cost, actual, serial int64)
}

var (
	_ meter = (*rateMeter)(nil)
	_ meter = (*quotaMeter)(nil)
	_ meter = (*slidingMeter)(nil)
)

// rateMeter is a shared rate.
//
// Refunds. A call that cost less than estimated gets the difference back, except units that have drained since the
// call: a refund of them would create units. Let slack(j) be what the bucket still held at the slot of a later call j.
// It is the TAT before j, less the slot. If the earlier call had cost r units less, the debt after j would be lower by
// r only if r <= slack(j). So the refund of call i is at most the least slack of all calls after i, and it lowers each
// of these slacks. marks keeps the least slacks, with rising serials and rising slacks. It has at most maxMarks
// entries. If there are more, it merges the two oldest, so that less is refunded.
//
// An overage is charged when it becomes known, like a call at that time. So it has a mark, too. Without the mark, a
// refund of units that had drained before the charge would cancel the charge.
//
// giveBack undoes the last grant completely, because no later call relied on it. The grant before it in the same ask,
// if there is one, is then the last grant.
type rateMeter struct {
	tally
	last  int64 // serial of the last grant, 0 if it is not known
	marks []mark
}

// mark says that at most slack microseconds of the calls up to serial-1 may be refunded.
type mark struct {
	serial int64
	slack  Micros
}

const maxMarks = 16

func (m *rateMeter) earliest(at Micros, cost int64) Micros {
	return m.slot(at, m.interval, m.burst, cost)
}

func (m *rateMeter) take(at Micros, cost, serial int64) {
	m.mark(serial, max(0, m.tat-at))
	m.gcra.take(at, m.interval, cost)
	m.last = serial
}

func (m *rateMeter) giveBack(_ Micros, cost, serial int64) {
	if m.last != serial {
		m.refund(serial, cost)
		return
	}
	m.untake(m.interval, cost)
	m.last = before(serial)
}

func (m *rateMeter) correct(now, _ Micros, cost, actual, serial int64) {
	switch {
	case actual > cost:
		m.charge(now, actual-cost)
	case actual < cost:
		m.refund(serial, cost-actual)
	}
}

// charge adds units whose use became known only after the call. The bucket goes into debt, which may exceed its burst.
// The call has been made, so only later calls can wait. charge rounds up and saturates.
func (m *rateMeter) charge(now Micros, units int64) {
	above := m.last + 1 // all grants that may get units back; no later one
	if n := len(m.marks); n > 0 {
		above = max(above, m.marks[n-1].serial)
	}
	m.mark(above, max(0, m.tat-now))
	extra := ceil(min(float64(maxMicros), float64(units)*(float64(m.interval.P)/float64(m.interval.Q)))) + 1
	m.tat = Micros(min(float64(maxMicros), float64(max(now, m.tat))+extra))
	m.last = 0
}

// refund takes back as much of the units of grant serial as is safe.
func (m *rateMeter) refund(serial, units int64) {
	r := Micros(units * m.interval.P / m.interval.Q)
	for _, k := range m.marks {
		if k.serial > serial {
			r = min(r, k.slack)
			break
		}
	}
	m.tat -= r
	least, keep := maxMicros, len(m.marks)
	for i := len(m.marks) - 1; i >= 0; i-- {
		k := m.marks[i]
		if k.serial > serial {
			k.slack -= r
		}
		if k.slack < least {
			least = k.slack
			keep--
			m.marks[keep] = k
		}
	}
	m.marks = append(m.marks[:0], m.marks[keep:]...)
}

// keepRefunds refuses refunds to all grants so far, because they were counted in another pace.
func (m *rateMeter) keepRefunds(asked int64) { m.marks = []mark{{serial: (asked + 1) * MaxWant}} }

// mark notes how much of the earlier calls can still be refunded after a call, or an overage, that found this slack.
func (m *rateMeter) mark(serial int64, slack Micros) {
	n := len(m.marks)
	for n > 0 && m.marks[n-1].slack >= slack {
		n--
	}
	if n > 0 && m.marks[n-1].serial == serial {
		return // the mark there allows less
	}
	m.marks = append(m.marks[:n], mark{serial, slack})
	if len(m.marks) > maxMarks {
		m.marks[1].slack = m.marks[0].slack
		m.marks = append(m.marks[:0], m.marks[1:]...)
	}
}

// before returns the serial of the previous slot of the same ask, 0 for the ask's first slot. Only within one ask is
// the previous serial certainly the limit's previous grant. So several slots of an ask can be given back in reverse
// order.
func before(serial int64) int64 {
	if serial%MaxWant == 0 {
		return 0
	}
	return serial - 1
}
