package bucket

import (
	"math/bits"
	"time"
)

// Level says how much of one shared limit is used. Quotas, budgets, shadow limits and limits with an excess have one.
type Level struct {
	Limit Limit
	// Used and Count are units, for a budget millionths of the currency unit. Units that calls under way may take count
	// as used. Count is the allowed amount, less the headroom. Both are 0 for a rate and for in-flight calls.
	Used, Count int64
	Start, End  Micros // of the period, by the calendar; 0 for a sliding one
	Held        int64  // calls that a shadow limit would have held
	// Unknown says that the use is unknown. Until the limit is seeded from the ledger, it counts as used up.
	Unknown bool
	// Bound says that Used is an upper bound: the units of calls before this process started are still being added up.
	Bound bool
	// Excess is how many units the vendor counts and weir does not, until ExcessUntil, as computed from an answer. Used
	// contains them. Excess and ExcessUntil are 0 if there are none.
	Excess      int64
	ExcessUntil Micros // by the calendar
}

// Percent returns how much of the limit is used, in percent, rounded down, 0 to 100.
func (l *Level) Percent() int {
	if l.Count <= 0 || l.Used <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(min(l.Used, l.Count)), 100)
	percent, _ := bits.Div64(hi, lo, uint64(l.Count))
	return int(percent)
}

// Window returns the window in which a use at now counts: the period, or for a sliding limit a fixed window of its
// length. Its start identifies the window, for reports that must be made once in each.
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

// Levels returns how much of the shared limits is used, in their order. It leaves out a rate and a limit of calls in
// flight, unless they are shadow limits or have an excess.
func (m *Memory) Levels() []Level {
	defer m.enter()()
	return m.engine.levels(m.now())
}

func (e *engine) levels(now Micros) []Level {
	now = e.follow(now)
	var levels []Level
	for i := range e.limits {
		l := &e.limits[i]
		more := now < l.excess.until
		if l.Quota == nil && l.Budget == nil && !l.Shadow && !more {
			continue
		}
		level := Level{Limit: l.Limit, Held: l.holds, Bound: l.bound}
		if more {
			level.Excess, level.ExcessUntil = l.excess.units, l.excess.until+l.of.ahead
		}
		switch m := l.meter.(type) {
		case *quotaMeter:
			p := m.at(now)
			level.Count, level.Used = m.count, m.usedIn(p)
			p = p.moved(l.of.ahead)
			level.Start, level.End = p.start, p.end
		case *slidingMeter:
			l.advance(now)
			level.Used, level.Count = m.sum, m.count
		}
		if level.Count > 0 {
			level.Used = min(level.Used+level.Excess, max(level.Used, level.Count))
		}
		if l.partial && l.counted() {
			level.Used, level.Unknown, level.Bound = level.Count, true, false
		}
		levels = append(levels, level)
	}
	return levels
}
