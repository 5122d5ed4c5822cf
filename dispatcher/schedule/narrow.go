package schedule

import (
	"math"
	"slices"
	"time"

	"weir/bucket"
)

// width returns how many jobs may be staging, ready or granted: as many as every shared limit lets start within
// LongWait, and at least one. A crash makes each of them unknown. If that number is not known, or other
// processes use the limits too, this process counts on as much as it was granted lately: it begins with one job,
// and widens with every grant.
func (s *Schedule) width(now bucket.Micros) int {
	n, known, _ := s.near(now)
	if len(s.shared) > 0 && (!known || s.store.clock == OtherClock) {
		n = min(n, s.lately.count(now, s.took))
	}
	return min(s.pace.MaxStaged, 1+int(n))
}

// near returns how many calls the shared limits let start within LongWait, less one.
func (s *Schedule) near(now bucket.Micros) (n float64, known bool, by string) {
	return s.shared.near(now, s.calls, s.callTime)
}

// LearnLevels takes in how much of the shared limits is used. The caller must not change levels afterwards.
func (s *Schedule) LearnLevels(levels []bucket.Level) { s.shared.learn(levels) }

// lately counts what this process was granted in about the last LongWait; older grants weigh less and less.
type lately struct {
	n  float64
	at bucket.Micros
}

// count returns how many jobs were granted lately. If it takes long to make a job ready, it looks back over a
// longer time. Otherwise few jobs would be ready, so few would be granted, and still fewer would be made ready.
func (l *lately) count(now bucket.Micros, took time.Duration) float64 {
	return l.n * math.Exp(-float64(max(0, l.at.Until(now)))/float64(max(LongWait, 2*took)))
}

func (l *lately) add(now bucket.Micros, took time.Duration) {
	l.n, l.at = l.count(now, took)+1, max(l.at, now)
}

// invites reports whether a queue may make a job ready now, beside the ready jobs that it has without a slot.
// The queue that has the turn may, and so may any queue while no other waits for a turn. A costly queue always
// may have one ready job: what it waits for is kept from the others.
func (s *Schedule) invites(q *KeyQueue, ungranted int64, now bucket.Micros) bool {
	if q.seat.costly && ungranted == 0 || !s.breaker.closed() {
		return true
	}
	if s.turns.lines[prepareLine].queues > 0 && !q.seat.invited && !q.seat.called {
		return false
	}
	width := s.width(now)
	if width >= s.pace.MaxStaged {
		return true
	}
	each := max(1, width/(1+s.turns.waiting()))
	return s.staged < width && ungranted < int64(each)
}

// inviteAt returns when the queues in turn must make jobs ready: before the shared limit is asked again, by as
// long as that takes. While the store does not answer, one queue at a time makes one ready, when the store is
// asked again.
func (s *Schedule) inviteAt() bucket.Micros {
	switch {
	case s.store.failures == 0:
		return s.gate.opens - bucket.Micros(s.pace.PrepareLead.Microseconds())
	case s.staged == 0:
		return s.gate.opens
	}
	return Never
}

// invite gives queues the turn to make a job ready, in the order in which they will have the shared limit.
func (s *Schedule) invite(now bucket.Micros) {
	if now < s.inviteAt() {
		return
	}
	n := s.width(now) - s.staged
	if s.store.failures > 0 {
		n = min(n, 1)
	}
	for ; n > 0; n-- {
		q := s.turns.toPrepare()
		if q == nil {
			return
		}
		s.Touch(q)
	}
}

// unslot withdraws a job that missed its slot while its queue waits for the turn to make another ready. It is
// made ready again then.
func (s *Schedule) unslot(q *KeyQueue, now bucket.Micros, fx *Effects) {
	if q.seat.line != prepareLine {
		return
	}
	for _, j := range q.Jobs {
		if j.Phase == ready {
			s.withdraw(j, now)
			fx.Stale = append(fx.Stale, j)
		}
	}
}

// withdrawBeyond withdraws ready jobs that wait for a shared limit until no more than most remain. It takes
// first all but one of each queue, then that one, and begins with the queues that will have the limit last. Of a
// queue it takes the newest first, since no job overtakes one that rests.
func (s *Schedule) withdrawBeyond(most int, out *Refused) {
	if s.staged <= most || s.turns.lines[askLine].queues == 0 {
		return
	}
	waiting, count := s.turns.takeAll(), 0
	for _, q := range waiting {
		count += q.count(ready)
	}
	for kept := 1; kept >= 0; kept-- {
		for _, q := range slices.Backward(waiting) {
			if q.seat.costly && most > 0 {
				continue
			}
			n := min(q.count(ready)-kept, count-most)
			count -= max(n, 0)
			s.withdrawNewest(q, n, out)
		}
	}
	for _, q := range waiting {
		s.turns.putBack(q)
	}
}

// withdrawNewest withdraws a queue's n newest ready jobs.
func (s *Schedule) withdrawNewest(q *KeyQueue, n int, out *Refused) {
	for _, j := range slices.Backward(q.Jobs) {
		if n > 0 && j.Phase == ready {
			n--
			s.withdraw(j, s.gate.opens)
			out.Withdrawn = append(out.Withdrawn, j)
		}
	}
}

// newest returns the start of the queue's newest call that runs or has a slot; 0 if there is none.
func (q *KeyQueue) newest() bucket.Micros {
	var at bucket.Micros
	for _, j := range q.Jobs {
		if j.Phase == granted || j.Phase == calling {
			at = max(at, j.At)
		}
	}
	return at
}

// unstick withdraws a queue's ready jobs behind calls that take longer than expected: they would keep room from
// other queues.
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
