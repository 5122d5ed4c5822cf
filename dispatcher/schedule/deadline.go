package schedule

import "weir/bucket"

// maxLapsing bounds the jobs that end at once because their deadlines passed while they waited. The dispatcher
// loads each for its letter.
const maxLapsing = 64

// lapse ends those of a queue's next jobs whose deadlines have passed: jobs that rest, jobs that are ready
// without a slot, and the waiting jobs from the first on, up to one that has time left. It takes no slot, no
// intent and no probe. It returns when the next deadline passes: the schedule looks at a queue that is paused,
// held or waits for a far limit then, and at no other time.
func (s *Schedule) lapse(q *KeyQueue, now bucket.Micros, fx *Effects) (next bucket.Micros) {
	next = Never
	for _, j := range q.Jobs {
		switch {
		case j.Deadline == 0 || j.cancelled || j.Phase != resting && j.Phase != ready:
		case j.Deadline > now:
			next = min(next, j.Deadline)
		case s.lapses.may(q):
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
		case !s.lapses.may(q):
			return Never
		}
		s.expireWaiting(q.dequeue(), fx)
	}
	return next
}

// lapses counts the jobs that are ending because their deadlines have passed, and lists the queues with more of
// them than may end at once.
type lapses struct {
	ending  int
	waiting []*KeyQueue
}

// may reports whether one more job may end now. If not, the queue is looked at again when another job has ended.
func (l *lapses) may(q *KeyQueue) bool {
	if l.ending < maxLapsing {
		return true
	}
	if !q.lapses {
		q.lapses = true
		l.waiting = append(l.waiting, q)
	}
	return false
}

// goOn reports whether a queue with too many jobs to end at once may go on.
func (l *lapses) goOn() bool { return len(l.waiting) > 0 && l.ending < maxLapsing }

// next takes the queue that has waited longest for this. There must be one.
func (l *lapses) next() *KeyQueue {
	q := l.waiting[0]
	l.waiting[0] = nil
	l.waiting = l.waiting[1:]
	q.lapses = false
	return q
}

// expireWaiting ends a job that is not loaded.
func (s *Schedule) expireWaiting(j *Job, fx *Effects) {
	j.Phase, j.lapsed = settling, true
	s.lapses.ending++
	fx.Expire = append(fx.Expire, j)
}
