package schedule

import (
	"time"

	"weir/bucket"
)

// startDue starts what is granted and due. A slot that was missed takes the later ones of the queue with it, newest
// first, so that the store can give them all back.
func (s *Schedule) startDue(q *KeyQueue, now bucket.Micros, fx *Effects) {
	if q.slipped != 0 {
		if first := firstGranted(q); first != nil {
			s.giveBack(q, first, fx)
		}
		q.TAT, q.cold, q.slipped = max(q.TAT, q.slipped), true, 0
		q.passed = q.count(asking) > 0
	}
	if q.sending() {
		return
	}
	for _, j := range q.Jobs {
		if j.Phase != granted || j.At > now {
			continue
		}
		if s.drain || s.barred || j.cancelled || now > s.latest(j) || s.heldUntil(q) > now || !s.breaker.mayCall(j) || s.outdated(j) {
			s.giveBack(q, j, fx)
			return
		}
		if j.Past(now) {
			s.giveBack(q, j, fx)
			s.expire(j, fx)
			return
		}
		j.Phase = calling
		s.staged--
		s.calls++
		s.uses.count(s.rules.Shared, j.Costs, now)
		fx.Start = append(fx.Start, j)
		if j.Unsent = s.rules.Interval(q.Limits.Rate).Duration() >= steadyFrom; j.Unsent {
			return
		}
	}
}

// latest is the time until which a granted call may start. What the way to the store was thought to take at best when the
// slot was reckoned may have turned out to be less: then the slot is later than it should be by the difference.
func (s *Schedule) latest(j *Job) bucket.Micros {
	return j.last - max(0, j.base-s.store.offset.base)
}

// steadyFrom is from which interval on a call waits until the one before it has left: a machine that is busy for some
// milliseconds must not let two calls leave together. Below it jitter is larger than the interval anyway.
const steadyFrom = time.Millisecond

// sending reports a call of the queue that has started and not left yet.
func (q *KeyQueue) sending() bool {
	for _, j := range q.Jobs {
		if j.Phase == calling && j.Unsent {
			return true
		}
	}
	return false
}

// giveBack returns the grants of the queue's jobs from first on.
func (s *Schedule) giveBack(q *KeyQueue, first *Job, fx *Effects) {
	for i := len(q.Jobs) - 1; i >= 0; i-- {
		j := q.Jobs[i]
		if j.Phase != granted || j.place.compare(first.place) < 0 {
			continue
		}
		fx.Unused = append(fx.Unused, bucket.Use{Key: q.Key, Grant: j.Grant, Costs: j.Costs, Returned: true})
		j.Phase = ready
		s.Forfeited++
		q.TAT = j.At
	}
	q.passed = q.count(asking) > 0
}

func (s *Schedule) expire(j *Job, fx *Effects) {
	s.breaker.letGo(j)
	j.Phase = settling
	s.staged--
	fx.Expire = append(fx.Expire, j)
}

// nextStart is the time of the queue's next granted call.
func (s *Schedule) nextStart(q *KeyQueue) bucket.Micros {
	next := Never
	if q.sending() {
		return Never // sent will touch the queue
	}
	for _, j := range q.Jobs {
		if j.Phase == granted {
			next = min(next, j.At)
		}
	}
	return next
}
