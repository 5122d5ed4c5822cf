package bucket

// meter is the state of one shared limit that is counted over time. Its methods are pure: times are passed in, and the
// caller must never let them run backwards.
type meter interface {
	// advance drops units that no longer count at now.
	advance(now Micros)
	// earliest returns the first time, at or after at, at which cost units fit. cost is at most the limit's capacity.
	earliest(at Micros, cost int64) Micros
	// take charges cost units at slot at to the grant serial; earliest(at, cost) must have been at.
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
// Refunds. A call that cost less than estimated may get the difference back only as far as every later call would still
// have had its slot. If the bucket has drained meanwhile, the estimate no longer counts anyway, and a refund would
// create units. For a later call j, slack(j) = TAT before it - its slot is what the bucket still held: lowering the
// earlier debt by r lowers j's own debt by r only while r <= slack(j). So the refund of call i is at most the least
// slack of all calls after i, and takes that much from each of them. marks keeps those suffix minima, with rising
// serials and rising slacks. It has at most maxMarks of them and merges the oldest in the safe direction.
//
// An overage counts from when it becomes known, like a call of then. So it has a mark, too: a refund of units that had
// drained by then would cancel it.
//
// No call comes after the last grant, so the rate gets all of it back. The grant before it is then the last one.
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

func (m *rateMeter) advance(Micros) {}

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

// charge adds units whose use became known only after the call: the bucket goes into debt, which may exceed its burst.
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

// keepRefunds refuses refunds of all earlier grants: they were counted by another pace.
func (m *rateMeter) keepRefunds(asked int64) { m.marks = []mark{{serial: (asked + 1) * MaxWant}} }

// mark notes the slack that a call, or an overage, found.
func (m *rateMeter) mark(serial int64, slack Micros) {
	n := len(m.marks)
	for n > 0 && m.marks[n-1].slack >= slack {
		n--
	}
	if n > 0 && m.marks[n-1].serial == serial {
		return // what stands there allows less
	}
	m.marks = append(m.marks[:n], mark{serial, slack})
	if len(m.marks) > maxMarks {
		m.marks[1].slack = m.marks[0].slack
		m.marks = append(m.marks[:0], m.marks[1:]...)
	}
}

// before returns the serial of the slot granted just before in the same ask, 0 for an ask's first. Only within one ask
// is it certain that the neighbour's grant was the last one before, so that several slots can be given back in reverse
// order.
func before(serial int64) int64 {
	if serial%MaxWant == 0 {
		return 0
	}
	return serial - 1
}
