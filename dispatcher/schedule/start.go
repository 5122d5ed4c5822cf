package schedule

import (
	"cmp"
	"slices"
	"time"

	"weir/bucket"
)

// startDue starts granted calls that are due. If a slot was missed, it also gives back the queue's later slots. It
// gives back the newest first, so that the store can take back all of them.
func (s *step) startDue(q *KeyQueue) {
	if q.slipped != 0 {
		if first := firstGranted(q); first != nil {
			s.giveBack(q, first)
		}
		q.takeSlip()
		q.passed = q.Jobs.count(asking) > 0
	}
	if q.Jobs.sending() {
		return
	}
	for _, j := range q.inSlots() {
		if j.Phase != granted || j.At > s.now {
			continue
		}
		if j.leaving && s.now > s.store.latest(j) {
			s.Pipe.exit.missed(j.At, s.now)
		}
		if s.drain || s.barred || j.cancelled || j.missed || s.now > s.store.latest(j) ||
			s.Holds.of(q) > s.now || !s.Holds.breaker.mayCall(j) || s.Holds.outdated(j) {
			s.giveBack(q, j)
			return
		}
		if j.Past(s.now) {
			s.giveBack(q, j)
			s.expire(j)
			return
		}
		if j.isLate(s.now) || j.isSplit() {
			s.split(q, j)
			return
		}
		s.Pipe.start(j)
		s.Shared.Begin(&j.Call, s.now)
		s.fx.Start = append(s.fx.Start, j)
		if j.Unsent = s.policy.interval(q.Limits) >= steadyFrom; j.Unsent {
			return
		}
	}
}

// steadyFrom is the shortest interval of a key at which a call waits until the call before it has left: a machine that
// is busy for some milliseconds must not let two calls leave together. At shorter intervals the jitter is larger than
// the interval anyway.
const steadyFrom = time.Millisecond

// giveBack gives back the grants of the queue's jobs from first on, the last one first.
func (s *step) giveBack(q *KeyQueue, first *Job) {
	slots := q.inSlots()
	for _, j := range slices.Backward(slots[slices.Index(slots, first):]) {
		if j.Phase != granted {
			continue
		}
		s.fx.Unused = append(s.fx.Unused, bucket.Use{Key: q.Key, Grant: j.Grant, Costs: j.Costs, Returned: true})
		s.Shared.Release(&j.Call)
		s.gate.replica.GiveBack(j.At)
		s.Pipe.exit.leave(j)
		s.Pipe.without(j, 1)
		j.Phase, j.missed = ready, false
		s.Forfeited++
		q.TAT = j.At
	}
	q.passed = q.Jobs.count(asking) > 0
	s.gate.gaveBack()
}

// inSlots returns the queue's jobs, with those that have slots in the order of their slots. If all jobs are normal,
// q.Jobs is in this order. Otherwise slots are granted to priorities in any order, and only the jobs of one priority
// get them in their order.
func (q *KeyQueue) inSlots() []*Job {
	if !q.waits.IsMixed() {
		return q.Jobs
	}
	jobs := slices.Clone(q.Jobs)
	slices.SortStableFunc(jobs, func(a, b *Job) int { return cmp.Compare(a.At, b.At) })
	return jobs
}

// firstGranted returns the job of a queue that has the first slot, nil if none has one.
func firstGranted(q *KeyQueue) *Job {
	for _, j := range q.inSlots() {
		if j.Phase == granted {
			return j
		}
	}
	return nil
}
