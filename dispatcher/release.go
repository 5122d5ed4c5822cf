package dispatcher

import (
	"container/heap"

	"weir/bucket"
)

// unwind takes back what lines are about to do: slots go back, and what was made ready rests again. It returns the lines
// whose jobs are still on their way, and is to be called for those again: a slot may have been asked for, or a job been
// about to become ready. Their part is not open, so that nothing new begins.
func (s *schedule) unwind(lines []*line, now bucket.Micros, fx *effects) (busy []*line) {
	for _, l := range lines {
		if first := firstGranted(l); first != nil {
			s.giveBack(l, first, fx)
		}
		for _, t := range l.tasks {
			if t.phase == ready {
				s.withdraw(t, now)
				fx.stale = append(fx.stale, t)
			}
		}
		if l.count(asking) > 0 {
			l.passed = true // what is granted now goes back at once
		}
		if l.count(staging, ready, asking, granted, calling, settling) > 0 {
			busy = append(busy, l)
		}
	}
	return busy
}

// forget lets go of a line whose part is not this process's any more. What of it is still on its way ends outside the
// schedule's lines; the key may have another line by then.
func (s *schedule) forget(l *line) {
	s.jobs -= l.waiting()
	l.first, l.more, l.cold = 0, nil, false
	kept := l.tasks[:0]
	for _, t := range l.tasks {
		if t.phase == resting {
			s.jobs--
			continue
		}
		kept = append(kept, t)
	}
	clear(l.tasks[len(kept):])
	l.tasks = kept
	s.timers.set(l, never)
	delete(s.heldKeys, l)
	if s.lines[l.key] == l {
		delete(s.lines, l.key)
		s.leave(l)
		s.countKept(l)
		l.tenant = &tenant{place: notWaiting} // its own: what of it is still on its way takes nobody's turn
	}
}

// forgetWaiting takes the lines of a part that is not this process's any more out of those that wait for a turn.
func (s *schedule) forgetWaiting(p *Partition) {
	all := s.blocked.tenants
	s.blocked.tenants = nil
	for _, t := range all {
		t.place = notWaiting
		waiting := t.blocked
		t.blocked = nil
		for _, x := range waiting {
			if x.line.part == p {
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
func (s *schedule) unstart(t *task) bucket.Use {
	t.phase, t.unsent = ready, false
	s.calls--
	s.staged++
	s.touch(t.line)
	s.permitFreed()
	return bucket.Use{Key: t.line.key, Grant: t.grant, Costs: t.costs, Returned: true}
}

func firstGranted(line *line) *task {
	for _, t := range line.tasks {
		if t.phase == granted {
			return t
		}
	}
	return nil
}
