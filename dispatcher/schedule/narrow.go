package schedule

import (
	"slices"

	"weir/bucket"
)

// narrowness is what the shared limit that refused a call last lets start from then on: one call at from, and one more every interval.
// The zero narrowness bounds nothing.
type narrowness struct {
	from  bucket.Micros
	every float64 // microseconds; 0 for a limit without a pace
}

// width is how many jobs may be ready, or on their way there, or wait for their slot: those whose calls can start within LongWait, and
// one at least. A crash makes each of them unknown. It grows for as long as nothing is refused, as what the limit saves up does.
func (s *Schedule) width(now bucket.Micros) int {
	if s.narrow.every <= 0 {
		return s.pace.MaxStaged
	}
	near := s.narrow.from.Until(now.Add(LongWait))
	return min(s.pace.MaxStaged, 1+int(min(MaxStaged, max(0, float64(near.Microseconds())/s.narrow.every))))
}

// narrowBy takes in which shared limit refused a call, and until when.
func (s *Schedule) narrowBy(w *bucket.Wait, now bucket.Micros) {
	i, l := s.shared(w.Limit)
	s.narrow = narrowness{}
	if l == nil {
		return
	}
	switch l.Kind() {
	case bucket.KindRate:
		s.narrow = narrowness{w.Until, s.units[i] * s.habits.usualCost(s.policy, i)}
	case bucket.KindInFlight: // its permits come back as calls end
		s.narrow = narrowness{now, float64(s.callTime.Microseconds()) / float64(max(1, s.rules.Lowered(l.InFlight)))}
	case bucket.KindQuota, bucket.KindBudget: // its whole count comes back at once
	}
}

// invites reports whether a queue may make a job ready now, beside those that it has made ready and that have no slot. A queue that has
// the turn may, and any while no other waits for one. A costly one always may: what it waits for is kept from the others.
func (s *Schedule) invites(q *KeyQueue, ungranted int64, now bucket.Micros) bool {
	if q.costly || !s.breaker.closed() {
		return true
	}
	if s.unprepared.size > 0 && !q.invited && !q.called {
		return false
	}
	width := s.width(now)
	if width >= s.pace.MaxStaged {
		return true
	}
	each := max(1, width/(1+s.unprepared.size+s.blocked.size))
	return s.staged < width && ungranted < int64(each)
}

// inviteAt is when queues in turn are to make jobs ready: as long before the shared limit is asked again as that takes. While the store
// does not answer, one at a time does, when the store is asked again.
func (s *Schedule) inviteAt() bucket.Micros {
	switch {
	case s.store.failures == 0:
		return s.until - bucket.Micros(s.pace.PrepareLead.Microseconds())
	case s.staged == 0:
		return s.until
	}
	return Never
}

// invite gives queues the turn to make a job ready, in the order in which they are to have the shared limit.
func (s *Schedule) invite(now bucket.Micros) {
	if now < s.inviteAt() {
		return
	}
	n := s.width(now) - s.staged
	if s.store.failures > 0 {
		n = min(n, 1)
	}
	for ; n > 0; n-- {
		q := s.unprepared.pop()
		if q == nil {
			return
		}
		q.invited = true
		s.Touch(q)
	}
}

// block lets a queue wait for its turn at the shared limits: to ask, or first to make a job ready.
func (s *Schedule) block(q *KeyQueue) {
	if q.count(staging, ready, asking) > 0 {
		s.blocked.push(q)
		s.unprepared.coming = s.blocked.coming
		return
	}
	s.unprepared.push(q)
	s.blocked.coming = s.unprepared.coming
}

// unslot lets go of a job that missed its slot while its queue waits for the turn to make another ready: it is made ready again then.
func (s *Schedule) unslot(q *KeyQueue, now bucket.Micros, fx *Effects) {
	if q.line != roomLine {
		return
	}
	for _, j := range q.Jobs {
		if j.Phase == ready {
			s.withdraw(j, now)
			fx.Stale = append(fx.Stale, j)
		}
	}
}

// withdrawBeyond lets go of ready jobs that wait for a shared limit until no more than most do: first all but one of a queue, then that
// one, of those queues first that are to have the limit last. Of a queue the newest go first, since none overtakes one that rests.
func (s *Schedule) withdrawBeyond(most int, out *Refused) {
	if s.staged <= most || s.blocked.size == 0 {
		return
	}
	var waiting []*KeyQueue
	count := 0
	for q := s.blocked.pop(); q != nil; q = s.blocked.pop() {
		waiting = append(waiting, q)
		count += q.count(ready)
	}
	for kept := 1; kept >= 0; kept-- {
		for _, q := range slices.Backward(waiting) {
			if q.costly && most > 0 {
				continue
			}
			n := min(q.count(ready)-kept, count-most)
			count -= max(n, 0)
			s.withdrawNewest(q, n, out)
		}
	}
	for _, q := range waiting {
		s.blocked.lend(q, 0)
		if q.count(staging, ready, asking) == 0 {
			s.unprepared.lend(q, 0)
		}
		s.block(q)
	}
}

// withdrawNewest lets go of a queue's n newest ready jobs.
func (s *Schedule) withdrawNewest(q *KeyQueue, n int, out *Refused) {
	for _, j := range slices.Backward(q.Jobs) {
		if n > 0 && j.Phase == ready {
			n--
			s.withdraw(j, s.until)
			out.Withdrawn = append(out.Withdrawn, j)
		}
	}
}

// book counts what a queue was granted, and takes back what it was lent: to make a job ready too, unless that one still waits for its slot.
func (s *Schedule) book(q *KeyQueue, d serviceTime) {
	s.blocked.took(q, d)
	s.unprepared.clock = s.blocked.clock
	if d > 0 || q.count(staging, ready, asking) == 0 {
		s.unprepared.lend(q, 0)
	} else {
		s.unprepared.reorder(q.tenant)
	}
}

// lendNothing takes back all that a queue was lent.
func (s *Schedule) lendNothing(q *KeyQueue) {
	s.blocked.lend(q, 0)
	s.unprepared.lend(q, 0)
}

// newest is when the newest of the queue's calls that run, or have a slot, started or is to start; 0 when there is none.
func (q *KeyQueue) newest() bucket.Micros {
	var at bucket.Micros
	for _, j := range q.Jobs {
		if j.Phase == granted || j.Phase == calling {
			at = max(at, j.At)
		}
	}
	return at
}

// unstick lets go of what a queue has ready behind calls that take longer than was thought: it would keep room from other queues.
func (s *Schedule) unstick(q *KeyQueue, now bucket.Micros, fx *Effects) {
	if q.count(ready) == 0 || q.count(granted, asking) > 0 || q.newest().Add(LongWait) > now {
		return
	}
	if free, _ := q.free(now); free > 0 {
		return
	}
	for _, j := range q.Jobs {
		if j.Phase == ready {
			s.withdraw(j, now)
			fx.Stale = append(fx.Stale, j)
		}
	}
}
