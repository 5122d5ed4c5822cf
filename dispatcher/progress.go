package dispatcher

import "weir/bucket"

// loaded reports that a task's message is here and its intent is stored, where it needs one.
func (s *schedule) loaded(t *task) {
	t.phase = ready
	s.touch(t.line)
}

// sent reports that a task's request has left at now. The calls that follow must not come too close to
// it: where it was later than a slot allows, the line's later slots are given back and its pace goes on from it.
func (s *schedule) sent(t *task, now bucket.Micros) {
	t.unsent = false
	if now > s.latest(t) {
		t.line.slipped = t.grant.TAT - t.grant.At + now
	}
	s.touch(t.line)
}

// unstage takes a staging task back out, to be settled without a call.
func (s *schedule) unstage(t *task) {
	s.noProbe(t)
	t.phase = settling
	s.staged--
	s.touch(t.line)
}

// unconnected takes a staging task back out for which there is no connection: that is a call that failed, and is to be heard of. A
// probe is the probe until then.
func (s *schedule) unconnected(t *task) {
	probe := s.probe == t
	s.unstage(t)
	if probe {
		s.probe = t
	}
}

// ended reports that a task's call has ended; its outcome is being stored.
func (s *schedule) ended(t *task) {
	t.phase = settling
	t.called = true
	s.calls--
	s.settling++
	s.touch(t.line)
	s.permitFreed()
}

// permitFreed reports that the store may have an in-flight permit again.
func (s *schedule) permitFreed() {
	if s.blocked.size > 0 && s.byInFlight() {
		s.until = 0
	}
}

// byInFlight reports whether the limit that blocks is one of calls running at once.
func (s *schedule) byInFlight() bool {
	for i := range s.rules.Shared {
		if l := &s.rules.Shared[i]; l.Name == s.by {
			return l.InFlight > 0
		}
	}
	return false
}

// rest lets a task wait for its retry. Its message is dropped from memory.
func (s *schedule) rest(t *task, notBefore bucket.Micros) {
	s.noProbe(t)
	s.cleared(t)
	s.settled(t)
	t.phase, t.notBefore = resting, notBefore
	t.unload()
	s.touch(t.line)
}

// settled counts out a call whose outcome is stored.
func (s *schedule) settled(t *task) {
	if t.called {
		t.called = false
		s.settling--
	}
}

// finished lets go of a settled task.
func (s *schedule) finished(t *task) {
	s.settled(t)
	s.cleared(t)
	if t.lapsed {
		s.lapsing--
	}
	t.unload()
	t.line.remove(t)
	s.jobs--
	s.touch(t.line)
}

// postpone lets a staging task rest until shortly before a slot that turned out to be far.
func (s *schedule) postpone(t *task, slot bucket.Micros) {
	s.unstage(t)
	s.rest(t, slot.Add(-s.pace.lead))
	t.limited = true
}
