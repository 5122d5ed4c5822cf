package schedule

import (
	"weir/bucket"
)

// maxLapsing bounds the jobs that end at once because their deadlines passed while they waited: each is loaded for its letter.
const maxLapsing = 64

// lapse ends those of a line's next jobs whose deadlines have passed: what rests, what is ready and has no slot, and the
// waiting jobs from the first on, up to one that has time left. It takes no slot, no intent and no probe. It returns when
// the next deadline passes: a line that is paused, held or waits for a far limit is looked at then, and at no other time.
func (s *Schedule) lapse(l *KeyQueue, now bucket.Micros, fx *Effects) (next bucket.Micros) {
	next = Never
	for _, t := range l.Jobs {
		switch {
		case t.Deadline == 0 || t.cancelled || t.Phase != resting && t.Phase != ready:
		case t.Deadline > now:
			next = min(next, t.Deadline)
		case s.mayLapse(l):
			if t.Phase == ready {
				s.expire(t, fx)
			} else {
				s.expireWaiting(t, fx)
			}
		default:
			return Never
		}
	}
	for l.first != 0 {
		at, timed := l.Partition.deadlines[l.first]
		switch {
		case !timed:
			return next
		case at > now:
			return min(next, at)
		case !s.mayLapse(l):
			return Never
		}
		s.expireWaiting(l.Extract(l.first), fx)
	}
	return next
}

// mayLapse reports whether one more job may end now; else its line is looked at again when another has.
func (s *Schedule) mayLapse(l *KeyQueue) bool {
	if s.lapsing < maxLapsing {
		return true
	}
	if !l.lapses {
		l.lapses = true
		s.lapses = append(s.lapses, l)
	}
	return false
}

// expireWaiting ends a job that is not loaded.
func (s *Schedule) expireWaiting(t *Job, fx *Effects) {
	t.Phase, t.lapsed = Settling, true
	s.lapsing++
	fx.Expire = append(fx.Expire, t)
}

// lapseMore lets lines go on whose jobs were too many to end at once.
func (s *Schedule) lapseMore(now bucket.Micros, fx *Effects) {
	for s.mayLapseMore() {
		l := s.lapses[0]
		s.lapses[0] = nil
		s.lapses = s.lapses[1:]
		l.lapses = false
		s.advance(l, now, fx)
	}
}

func (s *Schedule) mayLapseMore() bool { return len(s.lapses) > 0 && s.lapsing < maxLapsing }
