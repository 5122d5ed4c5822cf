package schedule

import (
	"time"

	"weir/bucket"
)

// startDue starts what is granted and due. A slot that was missed takes the later ones of the line with it, newest
// first, so that the store can give them all back.
func (s *Schedule) startDue(l *KeyQueue, now bucket.Micros, fx *Effects) {
	if l.slipped != 0 {
		if first := firstGranted(l); first != nil {
			s.giveBack(l, first, fx)
		}
		l.TAT, l.cold, l.slipped = max(l.TAT, l.slipped), true, 0
		l.passed = l.count(asking) > 0
	}
	if l.sending() {
		return
	}
	for _, t := range l.Jobs {
		if t.Phase != granted || t.At > now {
			continue
		}
		if s.drain || s.barred || t.cancelled || now > s.latest(t) || s.heldUntil(l) > now || !s.mayCall(t) || s.outdated(t) {
			s.giveBack(l, t, fx)
			return
		}
		if t.Past(now) {
			s.giveBack(l, t, fx)
			s.expire(t, fx)
			return
		}
		t.Phase = calling
		s.staged--
		s.calls++
		fx.Start = append(fx.Start, t)
		if t.Unsent = s.Rules.Interval(l.Limits.Rate).Duration() >= steadyFrom; t.Unsent {
			return
		}
	}
}

// latest is the time until which a granted call may start. What the way to the store was thought to take at best when the
// slot was reckoned may have turned out to be less: then the slot is later than it should be by the difference.
func (s *Schedule) latest(t *Job) bucket.Micros {
	return t.last - max(0, t.base-s.offset.base)
}

// steadyFrom is from which interval on a call waits until the one before it has left: a machine that is busy for some
// milliseconds must not let two calls leave together. Below it jitter is larger than the interval anyway.
const steadyFrom = time.Millisecond

// sending reports a call of the line that has started and not left yet.
func (l *KeyQueue) sending() bool {
	for _, t := range l.Jobs {
		if t.Phase == calling && t.Unsent {
			return true
		}
	}
	return false
}

// giveBack returns the grants of the line's tasks from first on.
func (s *Schedule) giveBack(l *KeyQueue, first *Job, fx *Effects) {
	for i := len(l.Jobs) - 1; i >= 0; i-- {
		t := l.Jobs[i]
		if t.Phase != granted || t.Seq < first.Seq {
			continue
		}
		fx.Unused = append(fx.Unused, bucket.Use{Key: l.Key, Grant: t.Grant, Costs: t.Costs, Returned: true})
		t.Phase = ready
		s.Forfeited++
		l.TAT = t.At
	}
	l.passed = l.count(asking) > 0
}

func (s *Schedule) expire(t *Job, fx *Effects) {
	s.noProbe(t)
	t.Phase = Settling
	s.staged--
	fx.Expire = append(fx.Expire, t)
}

// nextStart is the time of the line's next granted call.
func (s *Schedule) nextStart(l *KeyQueue) bucket.Micros {
	next := Never
	if l.sending() {
		return Never // sent will touch the line
	}
	for _, t := range l.Jobs {
		if t.Phase == granted {
			next = min(next, t.At)
		}
	}
	return next
}
