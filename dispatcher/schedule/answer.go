package schedule

import (
	"time"

	"weir/bucket"
)

// Refused lists the jobs that a round of asks stopped on their way to a call.
type Refused struct {
	Withdrawn  []*Job // their slot is far off: they rest until then
	Impossible []*Job // their cost can never pass
	OverBudget []*Job // the money is spent, and the budget says to bury
	Unused     []bucket.Use
	News       []HoldChange
}

// Reply is the store's reply to a round of asks.
type Reply struct {
	Sent, Came bucket.Micros // by our clock
	Answers    []bucket.Answer
	Err        error
}

// Answer takes in the store's answers to the asks of one step.
func (s *Schedule) Answer(fx *Effects, r Reply) Refused {
	s.store.rounds--
	if r.Err != nil {
		return s.unanswered(fx, r.Came)
	}
	if s.store.answered() {
		s.gate.open() // queues that waited for the store may ask at once
	}
	shift, unsure := s.store.shift(r)
	if s.store.clock == OtherClock { // one trip for the ask, one in case it just missed the previous round, and a tick
		s.pace.ReserveAhead = min(LeastAhead+2*s.store.trip, MostAhead)
	}
	var out Refused
	for i, jobs := range fx.asked {
		q, a := jobs[0].Queue, r.Answers[i]
		a.Wait.Until += shift
		if n, told := s.onBudget(&a, r.Came); told {
			out.News = append(out.News, n)
		}
		tat, cold := q.TAT, q.cold
		for k, j := range jobs {
			j.Phase = ready
			if k < len(a.Grants) {
				at := a.Grants[k].At + shift
				j.last = at.Add(s.pace.GrantTTL) - unsure
				at = max(at, q.lastGranted()) // the shift is not the same each time: a later slot must not look earlier
				j.Phase, j.Grant, j.At, j.base = granted, a.Grants[k], at, s.store.offset.base
				q.TAT, q.cold = j.Grant.TAT+shift, false
				j.asked = r.Sent
				s.paced(j)
				s.shared.granted(j.Costs, at)
				s.lately.add(r.Came, s.took)
				continue
			}
			s.refuse(j, &a.Wait, r.Came, &out)
		}
		if q.passed {
			fx := Effects{}
			s.giveBack(q, jobs[0], &fx)
			out.Unused = append(out.Unused, fx.Unused...)
			q.TAT, q.cold = tat, cold
		}
		s.turns.book(q, len(a.Grants))
		q.binds, q.askAt, q.seat.costly = "", 0, false
		s.Touch(q)
		if len(a.Grants) < len(jobs) && a.Wait.Limit != ownRate {
			s.gate.scarce = r.Came
			if l := s.shared.named(a.Wait.Limit); l != nil {
				l.refused(jobs[len(a.Grants)], a.Wait.Until)
			}
		}
		switch {
		case len(a.Grants) == len(jobs), a.Wait.Never, a.Wait.Exhausted == bucket.DeadLetter:
		case a.Wait.Limit == ownRate:
			q.binds, q.askAt = ownRate, a.Wait.Until
		case s.waitsAlone(jobs[0], &a.Wait, r.Came):
			q.binds = a.Wait.Limit
		default:
			q.binds = a.Wait.Limit
			s.gate.shut(a.Wait.Limit, a.Wait.Until)
			if q.seat.costly = s.costOf(jobs[0], a.Wait.Limit) > 1; !q.seat.costly || a.Wait.Until <= r.Came.Add(LongWait) {
				s.turns.wait(q)
			}
		}
	}
	s.withdrawBlocked(r.Came, &out)
	s.gate.asked = r.Sent
	return out
}

// withdrawBlocked withdraws ready jobs that wait for a shared limit, if the limit opens too late or gives too
// little for all of them.
func (s *Schedule) withdrawBlocked(now bucket.Micros, out *Refused) {
	n, _, _ := s.near(now)
	most := 1 + int(n)
	if s.gate.isShut(now.Add(LongWait)) {
		most = 0
	}
	s.withdrawBeyond(most, out)
}

// waitsAlone reports whether a limit refused the job because of its cost and its whole count comes back at once.
// Until then cheaper jobs of other keys may use what is left. If the limit came back bit by bit, they would
// leave this job nothing.
func (s *Schedule) waitsAlone(j *Job, w *bucket.Wait, now bucket.Micros) bool {
	if w.Until <= now.Add(LongWait) || s.costOf(j, w.Limit) <= 1 {
		return false
	}
	l := s.shared.named(w.Limit)
	return l != nil && l.Quota != nil && l.Quota.Window != bucket.Sliding
}

// costOf returns the units of a shared limit that a job takes, 0 if there is no limit of that name. It counts
// money as 0: every job of an api costs the same.
func (s *Schedule) costOf(j *Job, limit string) int64 {
	if l := s.shared.named(limit); l != nil {
		return l.costOf(j)
	}
	return 0
}

// refuse decides what becomes of a job that got no slot.
func (s *Schedule) refuse(j *Job, w *bucket.Wait, now bucket.Micros, out *Refused) {
	switch {
	case w.Never:
		out.Impossible, j.Refused = append(out.Impossible, j), w.Limit
		s.end(j, now)
	case w.Exhausted == bucket.DeadLetter:
		out.OverBudget, j.Refused = append(out.OverBudget, j), w.Limit
		s.end(j, now)
	case w.Until > now.Add(LongWait):
		if s.shared.named(w.Limit) != nil {
			s.gate.putOff = max(s.gate.putOff, w.Until)
		}
		s.withdraw(j, w.Until)
		out.Withdrawn = append(out.Withdrawn, j)
	}
}

// end takes out a job that ends without a call. It counts in lately like a grant, so that another job may be made
// ready in its place.
func (s *Schedule) end(j *Job, now bucket.Micros) {
	s.Unstage(j)
	s.lately.add(now, s.took)
}

// unanswered makes every queue that asked in vain wait. While a store stays away, one queue at a time asks, less
// and less often. After LongWait no other job is kept ready: its intent would make it unknown if the process
// died meanwhile.
func (s *Schedule) unanswered(fx *Effects, now bucket.Micros) Refused {
	s.gate.shut(storeDown, now.Add(s.store.failed(now)))
	for _, jobs := range fx.asked {
		q := jobs[0].Queue
		for _, j := range jobs {
			j.Phase = ready
		}
		s.turns.book(q, 0)
		q.binds, q.askAt = storeDown, 0
		s.turns.wait(q)
		s.Touch(q)
	}
	var out Refused
	if now < s.store.downAt.Add(LongWait) {
		return out
	}
	s.withdrawBeyond(0, &out)
	return out
}

// KnownTAT returns the theoretical arrival time that the store knows of a key without a queue, by our clock; 0
// if it knows none.
func (s *Schedule) KnownTAT(key string) bucket.Micros {
	if s.store.clock == OwnClock {
		return s.store.tatOf(key)
	}
	return s.store.offset.ours(s.store.tatOf(key))
}

// Floor returns the theoretical arrival time of a queue, by the store's clock, that the store must be told.
func (s *Schedule) Floor(q *KeyQueue) bucket.Micros {
	if s.store.clock == OwnClock {
		return q.TAT
	}
	return max(q.floor, s.store.offset.theirs(q.TAT))
}

// LongWait is the longest wait for which a job is kept ready. Before a longer wait the schedule withdraws it:
// its message and intent go and are made again later. A crash makes every job unknown that has an intent and was
// not called. At 2 s, a crash under a shared limit parked 5.6 such jobs, since the limit's checkpoint makes
// calls wait for as long after a start. At 250 ms it parks 2.7, of which one had been called.
const LongWait = 250 * time.Millisecond

func (s *Schedule) withdraw(j *Job, until bucket.Micros) {
	s.breaker.letGo(j)
	s.cleared(j)
	j.Phase, j.NotBefore, j.limited = resting, until.Add(-s.pace.PrepareLead), true
	j.unload()
	s.staged--
}

// ownRate is the stores' name for a key's own rate. storeDown is the schedule's name for a store that did not
// answer.
const (
	ownRate   = "rate"
	storeDown = "limiter unreachable"

	StoreRetry     = 100 * time.Millisecond
	MostStoreRetry = time.Second
)
