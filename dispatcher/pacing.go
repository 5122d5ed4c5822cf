package dispatcher

import (
	"time"

	"weir/bucket"
)

// slowed is what the schedule waits for where the api's governor keeps it from asking.
const slowed = "slow start"

// earliest is when the line's own governor lets it ask for its next slot, 0 when nothing slows it.
func (l *line) earliest() bucket.Micros {
	if l.governor == nil {
		return 0
	}
	return l.governor.earliest()
}

// restart begins a slow start of the line.
func (l *line) restart(now bucket.Micros) {
	if l.governor == nil {
		l.governor = &governor{}
	}
	l.governor.restart(now)
}

// atOnce is how many calls a line may have made ready or granted together: one after the other, when it is slowed.
func (l *line) atOnce() int64 {
	if l.governor != nil && l.governor.slows() {
		return 1
	}
	return min(l.limits.InFlight, maxAsks)
}

// relax lets the governors have what they have grown by, and lets go of a line's that slows nothing.
func (s *schedule) relax(l *line, now bucket.Micros) {
	a := s.policy.Retry.Adaptive
	s.governor.grow(a, now)
	if g := l.governor; g != nil {
		if g.grow(a, now); !g.slows() {
			l.governor = nil
		}
	}
}

// mayAsk reports whether the governors let a line ask for a slot at now; else it is blocked, or to be looked at again.
func (s *schedule) mayAsk(l *line, now bucket.Micros, fx *effects) (again bucket.Micros, may bool) {
	s.relax(l, now)
	if l.governor != nil {
		if l.count(asking, granted) > 0 {
			return never, false // one after the other: its call will touch the line
		}
		if at := l.governor.earliest(); at > now {
			return at, false
		}
	}
	if !s.governor.slows() {
		return 0, true
	}
	if at := s.governor.earliest(); at > now {
		s.until, s.by = max(s.until, at), slowed
	}
	if s.until > now || len(fx.asks) > 0 {
		s.block(l)
		return never, false
	}
	return 0, true
}

// slows reports whether a line may ask for one slot at a time only.
func (s *schedule) slows(l *line) bool { return l.governor != nil || s.governor.slows() }

// outdated reports whether a task's slot was asked for before the slow start that is to pace it.
func (s *schedule) outdated(t *task) bool {
	return t.asked < s.governor.began || t.line.governor != nil && t.asked < t.line.governor.began
}

// paced takes in that a task has its slot.
func (s *schedule) paced(t *task) {
	if s.governor.slows() {
		s.governor.granted(s.interval(t), t.at)
	}
	if g := t.line.governor; g != nil {
		g.granted(s.rules.Interval(t.line.limits.Rate).Duration(), t.at)
	}
}

// interval is the time between two calls of the api at its configured rate: by the shared rate that binds a task like
// this most, or, where keys share none, by the rates of all keys that have jobs together.
func (s *schedule) interval(t *task) time.Duration {
	var most time.Duration
	for i := range s.rules.Shared {
		l := &s.rules.Shared[i]
		if l.Rate == nil || l.Shadow {
			continue
		}
		cost := int64(1)
		if i < len(t.costs) {
			cost = t.costs[i]
		}
		one := s.rules.Interval(*l.Rate).Duration()
		most = max(most, min(one, longestInterval/time.Duration(max(cost, 1)))*time.Duration(cost))
	}
	if most == 0 {
		most = s.rules.Interval(t.line.limits.Rate).Duration() / time.Duration(max(len(s.lines), 1))
	}
	return most
}

// memory is until when a line must not be forgotten though it has no jobs: until what the store has not been told yet
// is over, its hold, and what pushback has taken of its rate. never when nothing is to be remembered.
func (s *schedule) memory(l *line, now bucket.Micros) bucket.Micros {
	s.relax(l, now)
	until := l.held
	if l.left > 0 {
		until = max(until, l.part.leftover)
	}
	if l.cold {
		until = max(until, l.tat)
	}
	if g := l.governor; g != nil && g.ceiling != 0 && s.policy.Retry.Adaptive != nil {
		until = max(until, now.Add(s.policy.Retry.Adaptive.Recover/16)) // and look again
	}
	if until <= now {
		return never
	}
	return until
}

// nextSlot is the earliest slot of a key by its own rate, as far as this process knows.
func (s *schedule) nextSlot(l *line, now bucket.Micros) bucket.Micros {
	return bucket.Forecast(*l.limits, s.rules.Interval(l.limits.Rate), l.tat, now, 1)
}
