package bucket

import (
	"math/bits"
	"time"
)

// Level is how much of one shared limit is used: of a quota, a budget, or any that only watches.
type Level struct {
	Limit Limit
	// Used and Count are units, of a budget millionths of money. What calls under way may take counts as used; Count is
	// what may be used, headroom taken off. Both are 0 for a rate and for in-flight calls.
	Used, Count int64
	Start, End  Micros // of the period, by the calendar; 0 for one that slides
	Held        int64  // calls that a limit that only watches would have held
	// Unknown says that what was used is not known, so that it counts as used up until the ledger has told.
	Unknown bool
	// Bound says that Used is the most that it can be: what calls before the start took is being added up.
	Bound bool
}

// Percent is how much of it is used, rounded down, 0 to 100.
func (l *Level) Percent() int {
	if l.Count <= 0 || l.Used <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(min(l.Used, l.Count)), 100)
	percent, _ := bits.Div64(hi, lo, uint64(l.Count))
	return int(percent)
}

// Window is where a use at now counts: the period, or for one that slides a fixed one of its length. What is to be told
// once for every window is told once for every start of it.
func (l *Level) Window(now Micros) (start, end Micros) {
	if l.Start < l.End {
		return l.Start, l.End
	}
	q := l.Limit.Quota
	if l.Limit.Budget != nil {
		q = &l.Limit.Budget.Quota
	}
	if q == nil || q.Per < time.Microsecond {
		return 0, maxMicros
	}
	fixed := Quota{Window: Fixed, Per: q.Per}
	return fixed.Period(now)
}

// Levels tells how much of the shared limits is used, in their order; those without a count and without a shadow are left
// out.
func (m *Memory) Levels() []Level {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.engine.levels(m.now())
}

func (e *engine) levels(now Micros) []Level {
	now = e.tick(now)
	var levels []Level
	for i := range e.shared {
		l := &e.shared[i]
		if l.Quota == nil && l.Budget == nil && !l.Shadow {
			continue
		}
		level := Level{Limit: l.Limit, Held: l.holds, Bound: l.bound}
		switch m := l.meter.(type) {
		case *quotaMeter:
			p := m.at(now)
			level.Count, level.Used = m.count, m.usedIn(p)
			p = p.moved(e.ahead)
			level.Start, level.End = p.start, p.end
		case *slidingMeter:
			m.advance(now)
			level.Used, level.Count = m.sum, m.count
		}
		if l.partial && l.counted() {
			level.Used, level.Unknown, level.Bound = level.Count, true, false
		}
		levels = append(levels, level)
	}
	return levels
}
