package schedule

import (
	"time"

	"weir/bucket"
)

// slowed is what the schedule waits for where the api's governor keeps it from asking.
const slowed = "slow start"

// earliest is when the line's own governor lets it ask for its next slot, 0 when nothing slows it.
func (l *KeyQueue) earliest() bucket.Micros {
	if l.governor == nil {
		return 0
	}
	return l.governor.earliest()
}

// restart begins a slow start of the line.
func (l *KeyQueue) restart(now bucket.Micros) {
	if l.governor == nil {
		l.governor = &governor{}
	}
	l.governor.restart(now)
}

// atOnce is how many calls a line may have made ready or granted together: one after the other, when it is slowed.
func (l *KeyQueue) atOnce() int64 {
	if l.governor != nil && l.governor.slows() {
		return 1
	}
	return min(l.Limits.InFlight, maxAsks)
}

// relax lets the governors have what they have grown by, and lets go of a line's that slows nothing.
func (s *Schedule) relax(l *KeyQueue, now bucket.Micros) {
	a := s.Policy.Retry.Adaptive
	s.governor.grow(a, now)
	if g := l.governor; g != nil {
		if g.grow(a, now); !g.slows() {
			l.governor = nil
		}
	}
}

// mayAsk reports whether the governors let a line ask for a slot at now; else it is blocked, or to be looked at again.
func (s *Schedule) mayAsk(l *KeyQueue, now bucket.Micros, fx *Effects) (again bucket.Micros, may bool) {
	s.relax(l, now)
	if l.governor != nil {
		if l.count(asking, granted) > 0 {
			return Never, false // one after the other: its call will touch the line
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
	if s.until > now || len(fx.Asks) > 0 {
		s.block(l)
		return Never, false
	}
	return 0, true
}

// slows reports whether a line may ask for one slot at a time only.
func (s *Schedule) slows(l *KeyQueue) bool { return l.governor != nil || s.governor.slows() }

// outdated reports whether a task's slot was asked for before the slow start that is to pace it.
func (s *Schedule) outdated(t *Job) bool {
	return t.asked < s.governor.began || t.Queue.governor != nil && t.asked < t.Queue.governor.began
}

// paced takes in that a task has its slot.
func (s *Schedule) paced(t *Job) {
	if s.governor.slows() {
		s.governor.granted(s.interval(t), t.At)
	}
	if g := t.Queue.governor; g != nil {
		g.granted(s.Rules.Interval(t.Queue.Limits.Rate).Duration(), t.At)
	}
}

// interval is the time between two calls of the api at its configured rate: by the shared rate that binds a task like
// this most, or, where keys share none, by the rates of all keys that have jobs together.
func (s *Schedule) interval(t *Job) time.Duration {
	var most time.Duration
	for i := range s.Rules.Shared {
		l := &s.Rules.Shared[i]
		if l.Rate == nil || l.Shadow {
			continue
		}
		cost := int64(1)
		if i < len(t.Costs) {
			cost = t.Costs[i]
		}
		one := s.Rules.Interval(*l.Rate).Duration()
		most = max(most, min(one, longestInterval/time.Duration(max(cost, 1)))*time.Duration(cost))
	}
	if most == 0 {
		most = s.Rules.Interval(t.Queue.Limits.Rate).Duration() / time.Duration(max(len(s.ByKey), 1))
	}
	return most
}

// memory is until when a line must not be forgotten though it has no jobs: until what the store has not been told yet
// is over, its hold, and what pushback has taken of its rate. never when nothing is to be remembered.
func (s *Schedule) memory(l *KeyQueue, now bucket.Micros) bucket.Micros {
	s.relax(l, now)
	until := l.held
	if l.Orphaned > 0 {
		until = max(until, l.Partition.Leftover)
	}
	if l.cold {
		until = max(until, l.TAT)
	}
	if g := l.governor; g != nil && g.ceiling != 0 && s.Policy.Retry.Adaptive != nil {
		until = max(until, now.Add(s.Policy.Retry.Adaptive.Recover/16)) // and look again
	}
	if until <= now {
		return Never
	}
	return until
}

// nextSlot is the earliest slot of a key by its own rate, as far as this process knows.
func (s *Schedule) NextSlot(l *KeyQueue, now bucket.Micros) bucket.Micros {
	return bucket.Forecast(*l.Limits, s.Rules.Interval(l.Limits.Rate), l.TAT, now, 1)
}
