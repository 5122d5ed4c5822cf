package schedule

import (
	"time"

	"weir/bucket"
)

// stage makes jobs ready whose slots are near, and returns when to look again.
func (s *step) stage(q *KeyQueue) (again bucket.Micros) {
	soon := s.now.Add(s.Pipe.pace.PrepareLead)
	ungranted := int64(q.ungranted())
	for {
		j, at := s.candidate(q, soon)
		if j == nil && at == Never {
			return Never
		}
		at = max(at, q.brake.earliest(), q.crowded(), s.policy.slot(q.Limits, q.TAT, s.now, int(ungranted)+1))
		if at > soon {
			return s.Pipe.lead(at)
		}
		if ungranted+s.ahead(q) >= q.atOnce() {
			return Never // the end of a call of this queue touches it
		}
		if !s.invites(q, ungranted) {
			if ungranted == 0 {
				s.turns.wait(q)
			}
			return Never
		}
		if !s.Pipe.hasRoom(&s.holds.breaker) || s.holds.breaker.yields(j) || s.holds.breaker.hasTried(j) && q.seat.queued {
			s.turns.room.push(q)
			return Never
		}
		if j == nil {
			j = q.dequeue()
		}
		j.limited = false
		s.looks.leave(j)
		s.Pipe.stage(j)
		s.holds.breaker.try(j)
		s.suspects.call(j)
		ungranted++
		s.fx.Load = append(s.fx.Load, j)
		if s.turns.room.size > 0 {
			s.turns.room.push(q) // a job a turn
			return Never
		}
	}
}

// candidate returns the next job to make ready: a resting job, or nil for the oldest waiting job. at is the
// earliest time of its call, as far as the job itself goes; Never if there is no job. Retries may be overtaken;
// a job that the api may not have seen yet may not.
func (s *step) candidate(q *KeyQueue, by bucket.Micros) (j *Job, at bucket.Micros) {
	at = Never
	passable := true
	for _, rest := range q.Jobs {
		if rest.Phase == settling && rest.Unseen {
			passable = false // the dispatcher is finding out what became of its call
			break
		}
		if rest.Phase == looking || s.waitsForAnswer(rest) {
			passable = false
			break
		}
		if rest.Phase != resting {
			continue
		}
		if may := s.suspects.mayCall(rest); may && rest.NotBefore < at {
			j, at = rest, rest.NotBefore
		}
		if rest.First() {
			passable = false
			break
		}
	}
	if passable && q.waits.hasNext() && (at > by || s.holds.breaker.hasTried(j)) {
		return nil, 0
	}
	return j, at
}

// shortCall is the longest usual duration of an api's calls for which a key's next job is made ready while one
// runs. Behind a long call, that job would take room from other keys, and would be unknown if the dispatcher
// died.
const shortCall = 100 * time.Millisecond

// ahead counts a queue's jobs that come before the next job to be made ready: granted ones, and running calls too if
// they are long.
func (s *step) ahead(q *KeyQueue) int64 {
	n := q.count(granted)
	if s.Pipe.callTime > shortCall || q.newest().Add(LongWait) <= s.now {
		n += q.count(calling)
	}
	return int64(n)
}

// invites reports whether a queue may make a job ready now, beside the ready jobs that it has without a slot. The queue
// that has the turn may, and so may any queue while no other waits for a turn. A costly queue may always have one ready
// job: the units for which it waits are kept from other queues.
func (s *step) invites(q *KeyQueue, ungranted int64) bool {
	if q.seat.costly && ungranted == 0 || !s.holds.breaker.closed() {
		return true
	}
	if s.turns.preparing() > 0 && !q.seat.invited && !q.seat.called {
		return false
	}
	width := s.At(s.now).width()
	if width >= s.Pipe.pace.MaxStaged {
		return true
	}
	each := max(1, width/(1+s.turns.waiting()))
	return s.Pipe.staged < width && ungranted < int64(each)
}

// unready withdraws ready jobs that cannot be called next: those that a former policy made ready, and those behind a
// job that was never called and rests or waits for memory. They would take the room that this job needs.
func (s *step) unready(q *KeyQueue) {
	gap := false
	for _, j := range q.Jobs {
		if j.Phase == ready && (gap || j.Policy != s.policy || !s.holds.breaker.mayCall(j)) {
			s.withdraw(j, s.now)
			s.Touch(q)
			s.fx.Stale = append(s.fx.Stale, j)
		}
		gap = gap || j.First() && (j.Phase <= looking || j.Phase == staging && j.Cramped)
	}
}

// unstick withdraws a queue's ready jobs behind calls that take longer than expected: they would take room from other
// queues.
func (s *step) unstick(q *KeyQueue) {
	if q.count(ready) == 0 || q.count(granted, asking) > 0 || q.newest().Add(LongWait) > s.now {
		return
	}
	if free, _ := q.free(s.now); free <= 0 {
		s.recall(q)
	}
}
