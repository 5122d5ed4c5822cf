package schedule

import (
	"slices"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/limits"
	"weir/dispatcher/schedule/turns"
)

// Refused lists the jobs that do not go on to their calls because of the answers to a round of asks.
type Refused struct {
	Withdrawn  []*Job // their slots are far off: they rest until then
	Impossible []*Job // their cost can never pass
	OverBudget []*Job // their budget is used up, and its rule says to bury them
	Unused     []bucket.Use
	News       []HoldChange
	PutOff     bool // jobs that a shared limit has put off for long must ask again: call AskAgain for every queue
}

// Reply is the store's reply to a round of asks.
type Reply struct {
	Sent, Came bucket.Micros // by our clock
	Answers    []bucket.Answer
	Err        error
	Trips      []Trip // made after the reply, if it tells the store's clock too roughly: see IsRough
}

// over returns when the reply was complete.
func (r *Reply) over() bucket.Micros {
	if n := len(r.Trips); n > 0 {
		return r.Trips[n-1].Came
	}
	return r.Came
}

// answering handles a store's reply at the time when it was complete, and gathers the jobs that it stopped.
type answering struct {
	step
	out Refused
}

// Answer handles the store's answers to the asks of one step.
func (s *Schedule) Answer(fx *Effects, r Reply) Refused {
	s.store.came()
	in := answering{step: step{Schedule: s, now: r.over()}}
	if r.Err != nil {
		in.unanswered(fx, r.Err)
		s.packs.loosen(&s.agenda)
		return in.out
	}
	if s.store.answered() {
		s.gate.open() // queues that waited for the store may ask at once
	}
	shift, unsure := s.store.shift(r)
	if s.store.clock == OtherClock { // one trip for the ask, one in case it just missed the previous round, and a tick
		s.Pipe.askAhead(2 * s.store.trip)
	}
	for i, jobs := range fx.asked {
		q, a := jobs[0].Queue, r.Answers[i]
		a.Wait.Until += shift
		if n, told := s.Holds.onBudget(&a, in.now); told {
			in.out.News = append(in.out.News, n)
		}
		former := q.keyPace
		for k, j := range jobs {
			j.Phase = ready
			if k < len(a.Grants) {
				j.asked = r.Sent
				in.grant(j, a.Grants[k], shift, unsure)
				continue
			}
			s.Pipe.exit.leave(j)
			in.refuse(j, &a.Wait)
		}
		if q.passed {
			in.giveBack(q, jobs[0])
			q.TAT, q.cold = former.TAT, former.cold
		}
		turn := jobs[0].turn
		s.Shared.Divided(a.Part)
		s.turns.Heard(q, turn, a.Elsewhere, a.Whole)
		s.turns.Book(q, turn, len(a.Grants))
		s.turns.Refuse(q, turn, 0)
		q.refused("", 0)
		s.Touch(q)
		if len(a.Grants) < len(jobs) {
			in.wait(q, jobs[0], jobs[len(a.Grants)], turn, &a.Wait)
		}
	}
	s.gate.freed()
	in.withdrawBlocked()
	s.gate.asked = r.Sent
	s.packs.loosen(&s.agenda)
	in.out.Unused, in.out.PutOff = in.fx.Unused, s.gate.takePutOff(in.now)
	return in.out
}

// grant gives a job its slot.
func (s *answering) grant(j *Job, g bucket.Grant, shift, unsure bucket.Micros) {
	q, at := j.Queue, g.At+shift
	j.last = at.Add(s.Pipe.pace.GrantTTL) - unsure
	at = max(at, q.Jobs.lastGranted()) // the shift is not the same each time: a later slot must not look earlier
	j.Phase, j.Grant, j.At, j.base = granted, g, at, s.store.offset.base
	if s.now > s.store.latest(j) {
		s.Pipe.exit.leave(j) // the store's answer came too late: that says nothing of this process
	}
	q.confirm(g.TAT + shift)
	s.paced(j)
	s.gate.replica.Take(at, s.now)
	s.Shared.Granted(&j.Call, at)
	s.Pipe.granted(s.now)
	s.Pipe.without(j, -1)
}

// paced tells the governors that a job was granted its slot. The governor of the api gets the least interval between
// calls: that of the shared rate that slows a job of these costs most, times the number of replicas, because each
// replica has an equal part of the slower pace. If no shared rate limits the job, the interval is the key's own,
// divided by the number of keys.
func (s *answering) paced(j *Job) {
	if !s.Holds.slow(j.Queue) {
		return
	}
	own := s.policy.interval(j.Queue.Limits)
	if g := j.Queue.brake.governor; g != nil {
		g.granted(own, j.At)
	}
	replicas := time.Duration(max(s.Findings.replicas, 1))
	all := min(s.Shared.Interval(j.Costs), limits.LongestInterval/replicas) * replicas
	if all == 0 {
		all = own / time.Duration(max(len(s.byKey), 1))
	}
	s.Holds.governor.granted(all, j.At)
}

// refuse ends a job whose slot was refused for good, or withdraws it if its wait is long. Otherwise the job stays
// ready.
func (s *answering) refuse(j *Job, w *bucket.Wait) {
	switch {
	case w.Never:
		s.out.Impossible, j.Refused = append(s.out.Impossible, j), w.Limit
		s.end(j)
	case w.Exhausted == bucket.DeadLetter:
		s.out.OverBudget, j.Refused = append(s.out.OverBudget, j), w.Limit
		s.end(j)
	case w.Until > s.now.Add(limits.LongWait):
		if s.Shared.Have(w.Limit) {
			s.gate.putOff = max(s.gate.putOff, w.Until)
		}
		s.withdraw(j, w.Until)
		s.out.Withdrawn = append(s.out.Withdrawn, j)
	}
}

// end takes a job out of the pipeline, because it ends without a call. It counts like a grant, so that another job may
// be made ready in its place.
func (s *answering) end(j *Job) {
	s.unstage(j)
	s.Pipe.granted(s.now)
}

// wait makes a queue wait for the limit that refused it. first is the first job for which the queue asked; refused is
// the first job that got no slot. The queue waits for another turn of the same priority.
func (s *answering) wait(q *KeyQueue, first, refused *Job, turn bucket.Priority, w *bucket.Wait) {
	if w.Limit != ownRate {
		s.gate.scarce = s.now
		s.Shared.Refused(&refused.Call, w)
	}
	if w.Never || w.Exhausted == bucket.DeadLetter {
		return
	}
	q.refused(w.Limit, 0)
	switch cost := s.Shared.CostOf(&first.Call, w.Limit); {
	case w.Limit == ownRate:
		q.refused(w.Limit, w.Until)
	case cost > 1 && s.comesBackWhole(w):
	default:
		s.gate.shut(w.Limit, w.Until)
		if s.turns.Refuse(q, first.turn, cost); cost <= 1 || w.Until <= s.now.Add(limits.LongWait) {
			s.waitInLine(q, turn)
		}
	}
}

// waitInLine makes a queue wait for its turn at the shared limits, unless its partition was lost while it asked.
func (s *answering) waitInLine(q *KeyQueue, of bucket.Priority) {
	if s.byKey[q.Key] == q {
		s.turns.Wait(q, of)
	}
}

// comesBackWhole reports whether the units of the limit that refused a job come back all at once, and later than
// LongWait from now. The same may hold for the vendor's count. A job that was refused because of its cost then waits
// outside the line, and cheaper jobs of other keys may use what is left. If the units came back bit by bit, the cheaper
// jobs would leave this job nothing.
func (s *answering) comesBackWhole(w *bucket.Wait) bool {
	return w.Until > s.now.Add(limits.LongWait) && (w.Excess > 0 || s.Shared.ComeBackWhole(w.Limit))
}

// unanswered makes every queue of an unanswered round wait. While the store does not answer, one queue at a time asks,
// at growing intervals. After LongWait, unanswered also withdraws the ready jobs that wait: if the process died
// meanwhile, their intents would make them unknown.
func (s *answering) unanswered(fx *Effects, err error) {
	s.gate.shut(storeDown, s.now.Add(s.store.failed(s.now, err)))
	for _, jobs := range fx.asked {
		q := jobs[0].Queue
		for _, j := range jobs {
			j.Phase = ready
			s.Pipe.exit.leave(j)
		}
		s.turns.Book(q, jobs[0].turn, 0)
		q.refused(storeDown, 0)
		s.waitInLine(q, jobs[0].turn)
		s.Touch(q)
	}
	if s.now >= s.store.downAt.Add(limits.LongWait) {
		s.withdrawBeyond(0)
	}
}

// withdrawBlocked withdraws ready jobs that wait for a shared limit, if the limit opens too late or lets too few of
// them through.
func (s *answering) withdrawBlocked() {
	n, _, _ := s.At(s.now).near()
	most := 1 + int(n)
	if s.gate.isShut(s.now.Add(limits.LongWait)) {
		most = 0
	}
	s.withdrawBeyond(most)
}

// withdrawBeyond withdraws ready jobs that wait for a shared limit until no more than most remain. It first takes all
// but one ready job of each queue, and then the last one too. It begins with the queues whose turns come last, and with
// the newest jobs of a queue, because no job overtakes one that rests.
func (s *answering) withdrawBeyond(most int) {
	if s.Pipe.staged <= most || s.turns.Asking() == 0 {
		return
	}
	waiting, count := s.turns.TakeAll(), 0
	for _, w := range waiting {
		count += readyOf(w)
	}
	for kept := 1; kept >= 0; kept-- {
		for _, w := range slices.Backward(waiting) {
			if w.Queue.seats.State(w.Priority).Costly && most > 0 {
				continue
			}
			n := min(readyOf(w)-kept, count-most)
			count -= max(n, 0)
			s.withdrawNewest(w, n)
		}
	}
	for _, w := range waiting {
		s.turns.PutBack(w)
	}
}

// readyOf returns how many of the jobs are ready for which a queue has waited in a line.
func readyOf(w turns.Taken[*KeyQueue]) int {
	return w.Queue.Jobs.countOf(classSet(0).with(w.Priority), ready)
}

// withdrawNewest withdraws the n newest ready jobs of a queue that has waited in a line.
func (s *answering) withdrawNewest(w turns.Taken[*KeyQueue], n int) {
	for _, j := range slices.Backward(w.Queue.Jobs) {
		if n > 0 && j.Phase == ready && j.turn == w.Priority {
			n--
			s.withdraw(j, s.gate.opens)
			s.out.Withdrawn = append(s.out.Withdrawn, j)
		}
	}
}

// Reasons not to ask the store, besides the shared limits. ownRate is a key's own rate, by the name that the stores
// use. storeDown is a store that did not answer. slowed is a slow start of the api.
const (
	ownRate   = "rate"
	storeDown = "limiter unreachable"
	slowed    = "slow start"

	StoreRetry     = 100 * time.Millisecond
	MostStoreRetry = time.Second
)
