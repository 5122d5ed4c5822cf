package bucket

import (
	"slices"
	"time"
)

// Calendars that are set back.
//
// The wall clock may be set back to a period before the one that a quota counts: it was wrong before, or it is wrong
// now. The api counts by a clock of its own, so recent grants may count in the api's present period, whichever period
// weir takes it for. Three rules apply to a quota that was turned back:
//
//   - The count continues: the period that the calendar shows now begins with everything that was granted within the
//     length of one period, by elapsed time.
//   - A period that was counted keeps its count: when the calendar comes to it again, its units are not granted twice.
//     Grants until then count in it, too.
//   - A period that was not counted before begins only when the length of one period has passed since the clock was set
//     back. So if a calendar is off by a month, a used-up quota holds calls for one period, and not for a month.

// periodCount is the count of a period other than the present one. The period lies ahead, or has ended lately.
type periodCount struct {
	span
	used int64
	last Micros // the latest slot in it
}

const (
	mostPeriods = 4 // the number of periods remembered; beyond it the earliest is dropped
	// early is how far ahead of now a period may begin without a sign that the calendar was set back: slots are granted
	// ahead of time, and clocks are slewed.
	early = Micros(10 * time.Second / time.Microsecond)
)

// usedIn returns the units used in a period.
func (m *quotaMeter) usedIn(p span) int64 {
	if p.start == m.period.start {
		return m.used
	}
	for _, o := range m.others {
		if o.start == p.start {
			return o.used
		}
	}
	return 0
}

// takeLater adds units to the counts of periods that lie ahead and were counted before.
func (m *quotaMeter) takeLater(units int64) {
	for i := range m.others {
		if o := &m.others[i]; o.start > m.period.start {
			o.used = min(int64(maxMicros), o.used+units)
		}
	}
}

// remember keeps the count of the present period, which is about to end.
func (m *quotaMeter) remember() {
	if m.period == (span{}) {
		return
	}
	m.others = slices.DeleteFunc(slices.Clone(m.others), func(o periodCount) bool { return o.start == m.period.start })
	m.others = append(m.others, periodCount{m.period, m.used, m.last})
	slices.SortFunc(m.others, func(a, b periodCount) int { return int(a.start - b.start) })
	m.others = m.others[max(0, len(m.others)-mostPeriods):]
}

// forget removes and returns the count of p, which becomes the present period.
func (m *quotaMeter) forget(p span) (used int64, last Micros) {
	m.others = slices.DeleteFunc(slices.Clone(m.others), func(o periodCount) bool {
		if o.start == p.start {
			used, last = o.used, o.last
		}
		return o.start == p.start
	})
	return used, last
}

// turnBack handles a calendar that was set back. If the counted period lies ahead of now, the period that the calendar
// shows at now becomes the present one.
func (m *quotaMeter) turnBack(now Micros) {
	if m.period.start <= now+early {
		return
	}
	m.near = span{}
	used, last, p := m.used, m.last, m.spanAt(now)
	length := Micros(ceilMicros(m.quota.Length()))
	for _, o := range m.others {
		if o.start == p.start || o.last+length > now {
			used, last = used+o.used, max(last, o.last)
		}
	}
	m.remember()
	m.forget(p)
	p.end = max(p.end, now+length)
	for _, o := range m.others {
		if o.start > p.start {
			p.end = min(p.end, o.start)
		}
	}
	m.period, m.used, m.last = p, min(int64(maxMicros), used), last
}
