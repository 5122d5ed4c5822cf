package schedule

import (
	"time"

	"weir/bucket"
)

// stage makes those jobs of the priorities in may ready whose slots are near. It returns when the schedule must look at
// the queue again. Jobs of other priorities wait for their turns, or for more jobs of their packs, and take no slot of
// the key from these jobs. In a slow key, each turn makes the job ready that is first in the key's own order.
func (s *step) stage(q *KeyQueue, may classSet) (again bucket.Micros) {
	if len(s.packs.freed) > 0 {
		s.loosen()
	}
	soon := s.now.Add(s.Pipe.pace.PrepareLead)
	ungranted := int64(q.countOf(may, staging, ready) + q.count(asking))
	again = Never
	some := allClasses // the priorities whose packs are not being gathered
	for may != 0 {
		j, turn, at := s.candidate(q, soon, may)
		if j == nil && at == Never {
			return again
		}
		of := turn
		if free, _ := q.free(s.now); s.isSlow(q, free) {
			j, of, _ = s.candidate(q, soon, some)
		}
		if s.policy.Packs != nil && at <= soon && s.holds.breaker.closed() {
			until := s.gathers(q, j, of)
			if until > soon {
				again, some, may = min(again, s.Pipe.lead(until)), some.without(of), may.without(of)
				continue
			}
			at = max(at, until)
		}
		at = max(at, q.brake.earliest(), q.crowded(), s.policy.slot(q.Limits, q.TAT, s.now, int(ungranted)+1))
		if at > soon {
			return min(again, s.Pipe.lead(at))
		}
		if ungranted+s.ahead(q) >= q.atOnce() || ungranted+int64(q.count(granted)) >= maxAsks {
			return again // the end of a call touches the queue
		}
		if own := q.ungrantedOf(turn); !s.invites(q, turn, own) {
			if own == 0 {
				s.turns.of(turn).wait(q)
			}
			may = may.without(turn)
			continue
		}
		room := s.Pipe.hasRoom(&s.holds.breaker)
		// yields is called later, because it returns true only once for a job: the job must yield when there is a claim.
		if room && !s.holds.mayProbe() {
			s.fx.Claim, _ = s.AwaitsProbe()
			return again // Claim touches every queue, and so does each turn of the breaker
		}
		if !room || s.holds.breaker.yields(j) || s.holds.breaker.hasTried(j) && q.seatOf(turn).queued {
			s.turns.awaitRoom(q, turn)
			return again
		}
		if j == nil {
			j = q.dequeue(of)
			s.census.callable[of-bucket.High]--
		} else {
			s.wake(of)
			if q.waits.classes != nil {
				q.waits.classes.reach(j.tag)
			}
		}
		j.limited, j.looked = false, false // if it is withdrawn, an answer is looked up again before its next slot
		s.looks.leave(j)
		s.Pipe.stage(j, turn)
		s.holds.breaker.try(j)
		s.suspects.call(j)
		if s.policy.Packs != nil {
			s.pack(j, at)
		}
		ungranted++
		s.fx.Load = append(s.fx.Load, j)
		if s.turns.roomWaiting() > 0 {
			s.turns.awaitRoom(q, turn) // one job for each turn
			return again
		}
	}
	return again
}

// candidate returns the next job to make ready of the priorities in may. j is a resting job, or nil for the first
// waiting job of the priority of. at is the earliest time at which the job itself may be called, Never if there is no
// job. A job that may be called by the time by counts as due.
func (s *step) candidate(q *KeyQueue, by bucket.Micros, may classSet) (j *Job, of bucket.Priority, at bucket.Micros) {
	if q.waits.classes == nil {
		j, at = s.candidateOf(q, bucket.Normal, by)
		return j, bucket.Normal, at
	}
	at = Never
	var first tag
	for _, p := range bucket.Priorities {
		if !may.has(p) {
			continue
		}
		next, when := s.candidateOf(q, p, by)
		tagged := q.waits.classes.class(p).next
		if next != nil {
			tagged = next.tag
		}
		sooner := when < at
		if when <= by && at <= by {
			sooner = tagged < first
		}
		if sooner {
			j, of, at, first = next, p, when, tagged
		}
	}
	return j, of, at
}

// candidateOf is candidate for one priority. Retries may be overtaken. A job that the api may not have seen yet may
// not.
func (s *step) candidateOf(q *KeyQueue, of bucket.Priority, by bucket.Micros) (j *Job, at bucket.Micros) {
	at = Never
	passable, awaited := true, false
	var bond string          // of the last bonded job in the loop
	var bonded bucket.Micros // when the pack of that job is due
	for _, rest := range q.Jobs {
		if rest.Priority != of || awaited && rest.First() {
			continue
		}
		if rest.Phase == settling && rest.Unseen {
			passable = false // the dispatcher is finding out what became of its call
			break
		}
		if s.awaitsAnswer(rest) {
			passable, awaited = false, true
			continue
		}
		if rest.Phase != resting {
			continue
		}
		if rest.cancelled && s.policy.Packs != nil { // it has just left its pack, and the next step ends it
			passable = false
			break
		}
		due := rest.NotBefore
		if rest.Bond != nil && s.policy.Packs != nil {
			if rest.Bond.ID != bond {
				bond, bonded = rest.Bond.ID, rest.bondDue()
			}
			due = bonded
		}
		if may := s.suspects.mayCall(rest); may && due < at {
			j, at = rest, due
		}
		if rest.First() {
			passable = false
			break
		}
	}
	if passable && q.waits.of(of).hasNext() && (at > by || s.holds.breaker.hasTried(j)) {
		return nil, 0
	}
	return j, at
}

// shortCall is the longest usual duration of an api's calls for which a key's next job is made ready while a call of
// the key runs. Behind a longer call, that job would take room from other keys, and would be unknown if the dispatcher
// died.
const shortCall = 100 * time.Millisecond

// ahead counts the queue's jobs that come before the next job to be made ready. These are the granted jobs and, if
// calls are long, the running ones.
func (s *step) ahead(q *KeyQueue) int64 {
	n := q.count(granted)
	if s.Pipe.callTime > shortCall || q.newest().Add(LongWait) <= s.now {
		n += q.count(calling)
	}
	return int64(n)
}

// invites reports whether a queue may make a job of a priority ready now. ungranted is how many jobs of that priority
// it already has on their way to a slot. The queue that has the turn may, and so may any queue while no queue waits for
// a turn. A costly queue may always have one ready job, because the units for which it waits are kept from other
// queues.
func (s *step) invites(q *KeyQueue, of bucket.Priority, ungranted int) bool {
	own := q.seatOf(of)
	if own.costly && ungranted == 0 || !s.holds.breaker.closed() {
		return true
	}
	if s.turns.preparing() > 0 && !own.invited && !own.hasTurn {
		return false
	}
	if own.invited && s.turns.shares.several && s.Pipe.onWay[of-bucket.High] == 0 {
		return true // see isFirstOnWay
	}
	width := s.At(s.now).width()
	return width >= s.Pipe.pace.MaxStaged || s.Pipe.staged < width && ungranted < max(1, width/(1+s.turns.waiting()))
}

// unready withdraws ready jobs that cannot be called next. It withdraws a job if
//   - a former policy made it ready, or the breaker does not let it be called;
//   - a job of its priority before it was never called, and rests or waits for memory: the ready job would take the
//     room that the other needs;
//   - it was never called, and a job of its priority before it awaits an answer: a retry stays ready;
//   - it leads a pack that would overtake a job.
func (s *step) unready(q *KeyQueue) {
	var gap, awaited classSet // priorities whose further jobs cannot be called next, or not for the first time
	for _, j := range q.Jobs {
		first := j.First() // read before withdraw takes the members away
		if j.Phase == ready && (gap.has(j.Priority) || awaited.has(j.Priority) && first || j.Policy != s.policy ||
			!s.holds.breaker.mayCall(j) || q.overtakes(j)) {
			s.withdraw(j, s.now)
			s.Touch(q)
			s.fx.Stale = append(s.fx.Stale, j)
		}
		switch {
		case s.awaitsAnswer(j):
			awaited = awaited.with(j.Priority)
		case first && !awaited.has(j.Priority) && (j.Phase == resting || j.Phase == staging && j.Cramped):
			gap = gap.with(j.Priority)
		}
	}
}

// unstick withdraws a queue's ready jobs if its running calls take longer than LongWait and no further call may start
// beside them. The ready jobs would take room from other queues.
func (s *step) unstick(q *KeyQueue) {
	if q.count(ready) == 0 || q.count(granted, asking) > 0 || q.newest().Add(LongWait) > s.now {
		return
	}
	if free, _ := q.free(s.now); free <= 0 {
		s.recall(q, allClasses)
	}
}
