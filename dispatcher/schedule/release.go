package schedule

import (
	"weir/bucket"
	"weir/dispatcher/schedule/backlog"
)

// Unwind withdraws the jobs of queues: slots are given back, and ready jobs rest again. It returns the queues with jobs
// that are still on their way, for example because a slot is being asked for or a job is about to become ready. The
// caller must call Unwind again for these. The queues' partition must not be open, so that no other job begins.
func (s *Schedule) Unwind(queues []*KeyQueue, now bucket.Micros, fx *Effects) (busy []*KeyQueue) {
	back := step{s, now, *fx}
	for _, q := range queues {
		if first := firstGranted(q); first != nil {
			back.giveBack(q, first)
		}
		back.recall(q, allClasses)
		if q.Jobs.count(asking) > 0 {
			q.passed = true // a grant for this ask is given back at once
		}
		if q.Jobs.count(looking, staging, ready, asking, granted, calling, settling) > 0 {
			busy = append(busy, q)
		}
	}
	s.packs.loosen(&s.agenda)
	*fx = back.fx
	return busy
}

// Forget drops a queue whose partition this process no longer owns. Jobs in a phase after resting stay in q until they
// end. By then the schedule may have another queue of the same key.
func (s *Schedule) Forget(q *KeyQueue) {
	s.census.unfinished -= q.waits.Size() + s.Pipe.polling.forget(q)
	s.gate.freed()
	s.census.early -= q.waits.NotDue()
	for _, p := range q.waits.Priorities() {
		b := q.waits.Of(p)
		s.turns.Goes(p, b.Due())
		*b = backlog.List{}
	}
	delete(s.packs.since, q)
	q.cold = false
	kept := q.Jobs[:0]
	for _, j := range q.Jobs {
		if j.Phase == resting {
			s.looks.leave(j)
			s.census.unfinished--
			continue
		}
		kept = append(kept, j)
	}
	clear(q.Jobs[len(kept):])
	q.Jobs = kept
	s.agenda.timers.set(q, Never)
	s.Holds.forget(q)
	if s.byKey[q.Key] == q {
		delete(s.byKey, q.Key)
		s.agenda.drop(q)
		s.turns.Leave(q)
		s.census.keep(q, q.Empty() && s.byKey[q.Key] == q)
		q.seats.Part()
	}
}

// ForgetWaiting removes the queues of a partition that this process does not own any more from the queues that wait for
// a turn.
func (s *Schedule) ForgetWaiting(p *Partition) {
	s.turns.Forget(func(q *KeyQueue) bool { return q.Partition == p })
}

// Unstart takes back a call that was to start and has not left. The next step gives back the call's slot and the
// queue's later ones before it asks for others, because a store can take back only the newest slots.
func (s *Schedule) Unstart(j *Job) {
	s.Pipe.unstart(j)
	s.Shared.Unbegin(&j.Call)
	j.Unsent, j.missed = false, true
	s.Touch(j.Queue)
	s.PermitFreed()
}
