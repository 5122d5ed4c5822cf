package schedule

import (
	"time"

	"weir/bucket"
)

// room reports whether another job may be made ready. While the breaker is not closed, only one may: the probe.
func (s *Schedule) room() bool {
	if !s.breaker.closed() {
		return s.breaker.probe == nil
	}
	return s.staged < s.pace.MaxStaged
}

// full reports whether as many calls run, or wait for their outcome to be stored, as may. While outcomes cannot
// be stored, no more calls are paid for.
func (s *Schedule) full() bool {
	return s.calls >= s.pace.MaxCalls || s.settling >= min(maxSettling, s.pace.MaxCalls)
}

// maxSettling bounds the calls that have ended and whose outcome is not stored yet.
const maxSettling = 512

// unblock gives the queues whose turn it is the next round of asks. The cost of one freed slot must not grow
// with the number of keys that wait for it. A queue that was refused because of its call's cost ends its round:
// cheaper calls asked for behind it would forever take what it waits for.
func (s *Schedule) unblock(now bucket.Micros) {
	if s.full() || now < s.gate.opens || s.store.rounds > 0 {
		return
	}
	most := maxAsks
	if s.store.failures > 0 || s.governor.slows() {
		most = 1 // it tries whether the store answers again, or a slow start allows only one
	}
	for range most {
		q := s.turns.toAsk()
		if q == nil {
			return
		}
		s.Touch(q)
		if q.seat.costly {
			return
		}
	}
}

// shortCall is the longest usual duration of an api's calls for which a key's next job is made ready while one
// runs. Behind a long call, that job would take room from other keys, and would be unknown if the dispatcher
// died.
const shortCall = 100 * time.Millisecond

// ahead counts a queue's jobs that stand before the next job to be made ready: granted ones, and running calls
// too if they are long.
func (s *Schedule) ahead(q *KeyQueue, now bucket.Micros) int64 {
	n := q.count(granted)
	if s.callTime > shortCall || q.newest().Add(LongWait) <= now {
		n += q.count(calling)
	}
	return int64(n)
}

// LearnCall follows how long calls take.
func (s *Schedule) LearnCall(took time.Duration) {
	s.callTime += (took - s.callTime) / 8
	if s.habit == 0 {
		s.habit = max(took, time.Microsecond)
		return
	}
	s.habit += (took - s.habit) / 8
}

// LearnLead follows how long it takes to make a job ready: up at once, down slowly.
func (s *Schedule) LearnLead(took time.Duration) {
	s.took = max(took, s.took-s.took/8+took/8)
	s.pace.PrepareLead = min(max(s.took+s.took/2, LeastLead), mostLead) + s.pace.ReserveAhead - LeastAhead
}
