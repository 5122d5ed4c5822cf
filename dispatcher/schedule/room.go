package schedule

import (
	"time"

	"weir/bucket"
)

// room reports whether another job may be made ready: one, the probe, while the breaker is not closed.
func (s *Schedule) room() bool {
	if !s.breaker.closed() {
		return s.breaker.probe == nil
	}
	return s.staged < s.pace.MaxStaged
}

// full reports whether as many calls run, or wait for their outcome to be stored, as may: while outcomes cannot be
// stored no more is paid for.
func (s *Schedule) full() bool {
	return s.calls >= s.pace.MaxCalls || s.settling >= min(maxSettling, s.pace.MaxCalls)
}

// maxSettling bounds the calls that have ended and whose outcome is not stored yet.
const maxSettling = 512

// unblock gives the queues whose turn it is the next round of asks: what one freed slot costs must not grow with the
// number of keys that wait for it. One that was refused because of what its call costs is asked for last in its round:
// cheaper calls of others, asked for behind it, would take for ever what it waits for.
func (s *Schedule) unblock(now bucket.Micros) {
	if s.full() || now < s.until || s.store.rounds > 0 {
		return
	}
	most := maxAsks
	if s.store.failures > 0 || s.governor.slows() {
		most = 1 // it tries whether the store is there again; or no more than one may go on
	}
	for range most {
		q := s.blocked.pop()
		if q == nil {
			return
		}
		q.called = true
		s.Touch(q)
		if q.costly {
			return
		}
	}
}

// shortCall is up to how long the calls of an api usually take for the next job of a key to be made ready while one runs.
// Behind a long call it would take room from other keys, and be one that nobody knows about if the worker died.
const shortCall = 100 * time.Millisecond

// ahead counts what of a queue stands before the next job to be made ready: running calls too, where they are long.
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
	s.habits.learnTook(took)
}

// LearnLead follows how long it takes to make a job ready: up at once, down slowly.
func (s *Schedule) LearnLead(took time.Duration) {
	s.took = max(took, s.took-s.took/8+took/8)
	s.pace.PrepareLead = min(max(s.took+s.took/2, LeastLead), mostLead) + s.pace.ReserveAhead - LeastAhead
}
