package schedule

import (
	"weir/bucket"
)

// maxLapsing bounds the jobs that end at once because their deadlines passed while they waited: each is loaded for its letter.
const maxLapsing = 64

// lapse ends those of a queue's next jobs whose deadlines have passed: what rests, what is ready and has no slot, and the
// waiting jobs from the first on, up to one that has time left. It takes no slot, no intent and no probe. It returns when
// the next deadline passes: a queue that is paused, held or waits for a far limit is looked at then, and at no other time.
func (s *Schedule) lapse(q *KeyQueue, now bucket.Micros, fx *Effects) (next bucket.Micros) {
	next = Never
	for _, j := range q.Jobs {
		switch {
		case j.Deadline == 0 || j.cancelled || j.Phase != resting && j.Phase != ready:
		case j.Deadline > now:
			next = min(next, j.Deadline)
		case s.mayLapse(q):
			if j.Phase == ready {
				s.expire(j, fx)
			} else {
				s.expireWaiting(j, fx)
			}
		default:
			return Never
		}
	}
	for p, ok := q.next(); ok; p, ok = q.next() {
		at, timed := q.Partition.deadlines[p.seq]
		switch {
		case !timed:
			return next
		case at > now:
			return min(next, at)
		case !s.mayLapse(q):
			return Never
		}
		s.expireWaiting(q.dequeue(), fx)
	}
	return next
}

// mayLapse reports whether one more job may end now; else its queue is looked at again when another has.
func (s *Schedule) mayLapse(q *KeyQueue) bool {
	if s.lapsing < maxLapsing {
		return true
	}
	if !q.lapses {
		q.lapses = true
		s.lapses = append(s.lapses, q)
	}
	return false
}

// expireWaiting ends a job that is not loaded.
func (s *Schedule) expireWaiting(j *Job, fx *Effects) {
	j.Phase, j.lapsed = settling, true
	s.lapsing++
	fx.Expire = append(fx.Expire, j)
}

// lapseMore lets queues go on whose jobs were too many to end at once.
func (s *Schedule) lapseMore(now bucket.Micros, fx *Effects) {
	for s.mayLapseMore() {
		q := s.lapses[0]
		s.lapses[0] = nil
		s.lapses = s.lapses[1:]
		q.lapses = false
		s.advance(q, now, fx)
	}
}

func (s *Schedule) mayLapseMore() bool { return len(s.lapses) > 0 && s.lapsing < maxLapsing }
