package schedule

import (
	"time"

	"weir/bucket"
)

// slowed is the name in Schedule.by of the api's governor, when that keeps the schedule from asking.
const slowed = "slow start"

// earliest returns when the queue's own governor lets it ask for its next slot, 0 if nothing slows it.
func (q *KeyQueue) earliest() bucket.Micros {
	if q.governor == nil {
		return 0
	}
	return q.governor.earliest()
}

// restart begins a slow start of the queue.
func (q *KeyQueue) restart(now bucket.Micros) {
	if q.governor == nil {
		q.governor = &governor{}
	}
	q.governor.restart(now)
}

// atOnce returns how many calls a queue may have ready or granted together: one at a time while it is slowed.
func (q *KeyQueue) atOnce() int64 {
	if q.governor != nil && q.governor.slows() {
		return 1
	}
	return min(q.Limits.InFlight, maxAsks)
}

// relax lets the ceilings of the governors grow up to now, and drops a queue's governor that slows nothing.
func (s *Schedule) relax(q *KeyQueue, now bucket.Micros) {
	a := s.policy.Retry.Adaptive
	s.governor.grow(a, now)
	if g := q.governor; g != nil {
		if g.grow(a, now); !g.slows() {
			q.governor = nil
		}
	}
}

// mayAsk reports whether the governors let a queue ask for a slot at now. If not, the queue is blocked, or the
// schedule looks at it when again has come.
func (s *Schedule) mayAsk(q *KeyQueue, now bucket.Micros, fx *Effects) (again bucket.Micros, may bool) {
	s.relax(q, now)
	if q.governor != nil {
		if q.count(asking, granted) > 0 {
			return Never, false // one at a time: its call will touch the queue
		}
		if at := q.governor.earliest(); at > now {
			return at, false
		}
	}
	if !s.governor.slows() {
		return 0, true
	}
	if at := s.governor.earliest(); at > now {
		s.gate.shut(slowed, max(s.gate.opens, at))
	}
	if s.gate.opens > now || len(fx.Asks) > 0 {
		s.turns.wait(q)
		return Never, false
	}
	return 0, true
}

// slows reports whether a queue may ask only for one slot at a time.
func (s *Schedule) slows(q *KeyQueue) bool { return q.governor != nil || s.governor.slows() }

// outdated reports whether a job's slot was asked for before the slow start that must pace it.
func (s *Schedule) outdated(j *Job) bool {
	return j.asked < s.governor.began || j.Queue.governor != nil && j.asked < j.Queue.governor.began
}

// paced tells the governors that a job has its slot.
func (s *Schedule) paced(j *Job) {
	if s.governor.slows() {
		s.governor.granted(s.interval(j), j.At)
	}
	if g := j.Queue.governor; g != nil {
		g.granted(s.rules.Interval(j.Queue.Limits.Rate).Duration(), j.At)
	}
}

// interval returns the time between two calls of the api at its configured rate. That is the interval of the
// shared rate that binds a job like this most. If keys share no rate, it is that of the rates of all keys with
// jobs together.
func (s *Schedule) interval(j *Job) time.Duration {
	most := s.shared.interval(j.Costs)
	if most == 0 {
		most = s.rules.Interval(j.Queue.Limits.Rate).Duration() / time.Duration(max(len(s.byKey), 1))
	}
	return most
}

// memory returns until when a queue without jobs must not be forgotten: because of what the store has not been
// told yet, its hold, and what pushback has taken of its rate. It returns Never if nothing must be remembered.
func (s *Schedule) memory(q *KeyQueue, now bucket.Micros) bucket.Micros {
	s.relax(q, now)
	until := q.held
	if q.Orphaned > 0 {
		until = max(until, q.Partition.Leftover)
	}
	if q.cold {
		until = max(until, q.TAT)
	}
	if g := q.governor; g != nil && g.ceiling != 0 && s.policy.Retry.Adaptive != nil {
		until = max(until, now.Add(s.policy.Retry.Adaptive.Recover/16)) // and look again
	}
	if until <= now {
		return Never
	}
	return until
}

// NextSlot returns the earliest slot of a key by its own rate, as far as this process knows.
func (s *Schedule) NextSlot(q *KeyQueue, now bucket.Micros) bucket.Micros {
	return bucket.Forecast(*q.Limits, s.rules.Interval(q.Limits.Rate), q.TAT, now, 1)
}
