package schedule

import (
	"container/heap"

	"weir/bucket"
)

// unwind takes back what lines are about to do: slots go back, and what was made ready rests again. It returns the lines
// whose jobs are still on their way, and is to be called for those again: a slot may have been asked for, or a job been
// about to become ready. Their part is not open, so that nothing new begins.
func (s *Schedule) Unwind(lines []*KeyQueue, now bucket.Micros, fx *Effects) (busy []*KeyQueue) {
	for _, l := range lines {
		if first := firstGranted(l); first != nil {
			s.giveBack(l, first, fx)
		}
		for _, t := range l.Jobs {
			if t.Phase == ready {
				s.withdraw(t, now)
				fx.Stale = append(fx.Stale, t)
			}
		}
		if l.count(asking) > 0 {
			l.passed = true // what is granted now goes back at once
		}
		if l.count(staging, ready, asking, granted, calling, Settling) > 0 {
			busy = append(busy, l)
		}
	}
	return busy
}

// forget lets go of a line whose part is not this process's any more. What of it is still on its way ends outside the
// schedule's lines; the key may have another line by then.
func (s *Schedule) Forget(l *KeyQueue) {
	s.Unfinished -= l.waiting()
	l.first, l.more, l.cold = 0, nil, false
	kept := l.Jobs[:0]
	for _, t := range l.Jobs {
		if t.Phase == resting {
			s.Unfinished--
			continue
		}
		kept = append(kept, t)
	}
	clear(l.Jobs[len(kept):])
	l.Jobs = kept
	s.timers.set(l, Never)
	delete(s.heldKeys, l)
	if s.ByKey[l.Key] == l {
		delete(s.ByKey, l.Key)
		s.leave(l)
		s.countKept(l)
		l.tenant = &tenant{place: notWaiting} // its own: what of it is still on its way takes nobody's turn
	}
}

// forgetWaiting takes the lines of a part that is not this process's any more out of those that wait for a turn.
func (s *Schedule) ForgetWaiting(p *Partition) {
	all := s.blocked.tenants
	s.blocked.tenants = nil
	for _, t := range all {
		t.place = notWaiting
		waiting := t.blocked
		t.blocked = nil
		for _, x := range waiting {
			if x.line.Partition == p {
				x.line.blocked = false
				s.blocked.size--
				continue
			}
			t.blocked.push(x)
		}
		if len(t.blocked) > 0 {
			heap.Push(&s.blocked.tenants, t)
		}
	}
}

// unstart takes a call back that was due and has not started: its slot goes back, and its job is ready again.
func (s *Schedule) Unstart(t *Job) bucket.Use {
	t.Phase, t.Unsent = ready, false
	s.calls--
	s.staged++
	s.Touch(t.Queue)
	s.PermitFreed()
	return bucket.Use{Key: t.Queue.Key, Grant: t.Grant, Costs: t.Costs, Returned: true}
}

func firstGranted(line *KeyQueue) *Job {
	for _, t := range line.Jobs {
		if t.Phase == granted {
			return t
		}
	}
	return nil
}
