package dispatcher

import (
	"time"

	"weir/bucket"
)

// startDue starts what is granted and due. A slot that was missed takes the later ones of the line with it, newest
// first, so that the store can give them all back.
func (s *schedule) startDue(l *line, now bucket.Micros, fx *effects) {
	if l.slipped != 0 {
		if first := firstGranted(l); first != nil {
			s.giveBack(l, first, fx)
		}
		l.tat, l.cold, l.slipped = max(l.tat, l.slipped), true, 0
		l.passed = l.count(asking) > 0
	}
	if l.sending() {
		return
	}
	for _, t := range l.tasks {
		if t.phase != granted || t.at > now {
			continue
		}
		if s.drain || s.barred || t.cancelled || now > s.latest(t) || s.heldUntil(l) > now || !s.mayCall(t) || s.outdated(t) {
			s.giveBack(l, t, fx)
			return
		}
		if t.past(now) {
			s.giveBack(l, t, fx)
			s.expire(t, fx)
			return
		}
		t.phase = calling
		s.staged--
		s.calls++
		fx.start = append(fx.start, t)
		if t.unsent = s.rules.Interval(l.limits.Rate).Duration() >= steadyFrom; t.unsent {
			return
		}
	}
}

// latest is the time until which a granted call may start. What the way to the store was thought to take at best when the
// slot was reckoned may have turned out to be less: then the slot is later than it should be by the difference.
func (s *schedule) latest(t *task) bucket.Micros {
	return t.last - max(0, t.base-s.offset.base)
}

// steadyFrom is from which interval on a call waits until the one before it has left: a machine that is busy for some
// milliseconds must not let two calls leave together. Below it jitter is larger than the interval anyway.
const steadyFrom = time.Millisecond

// sending reports a call of the line that has started and not left yet.
func (l *line) sending() bool {
	for _, t := range l.tasks {
		if t.phase == calling && t.unsent {
			return true
		}
	}
	return false
}

// giveBack returns the grants of the line's tasks from first on.
func (s *schedule) giveBack(l *line, first *task, fx *effects) {
	for i := len(l.tasks) - 1; i >= 0; i-- {
		t := l.tasks[i]
		if t.phase != granted || t.seq < first.seq {
			continue
		}
		fx.unused = append(fx.unused, bucket.Use{Key: l.key, Grant: t.grant, Costs: t.costs, Returned: true})
		t.phase = ready
		s.forfeited++
		l.tat = t.at
	}
	l.passed = l.count(asking) > 0
}

func (s *schedule) expire(t *task, fx *effects) {
	s.noProbe(t)
	t.phase = settling
	s.staged--
	fx.expire = append(fx.expire, t)
}

// nextStart is the time of the line's next granted call.
func (s *schedule) nextStart(l *line) bucket.Micros {
	next := never
	if l.sending() {
		return never // sent will touch the line
	}
	for _, t := range l.tasks {
		if t.phase == granted {
			next = min(next, t.at)
		}
	}
	return next
}
