package schedule

import (
	"time"

	"weir/bucket"
)

// startDue starts granted calls that are due. A missed slot takes the queue's later ones with it, newest first,
// so that the store can give all of them back.
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
		s.shared.begin(j.Costs, now)
		fx.Start = append(fx.Start, j)
		if j.Unsent = s.rules.Interval(q.Limits.Rate).Duration() >= steadyFrom; j.Unsent {
			return
		}
	}
}

// latest returns the time until which a granted call may start. The best round trip to the store may have turned
// out shorter than was assumed when the slot's time was computed. Then the slot is later than it should be by
// the difference.
func (s *Schedule) latest(j *Job) bucket.Micros {
	return j.last - max(0, j.base-s.store.offset.base)
}

// steadyFrom is the shortest interval at which a call waits until the one before it has left: a machine that is
// busy for some milliseconds must not let two calls leave together. Below it jitter is larger than the interval
// anyway.
const steadyFrom = time.Millisecond

// sending reports whether a call of the queue has started and not left yet.
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

// nextStart returns the time of the queue's next granted call.
func (s *Schedule) nextStart(q *KeyQueue) bucket.Micros {
	next := Never
	if q.sending() {
		return Never // Sent will touch the queue
	}
	for _, j := range q.Jobs {
		if j.Phase == granted {
			next = min(next, j.At)
		}
	}
	return next
}
