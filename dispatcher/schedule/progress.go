package schedule

import "weir/bucket"

// loaded reports that a task's message is here and its intent is stored, where it needs one.
func (s *Schedule) Loaded(t *Job) {
	t.Phase = ready
	s.Touch(t.Queue)
}

// sent reports that a task's request has left at now. The calls that follow must not come too close to
// it: where it was later than a slot allows, the line's later slots are given back and its pace goes on from it.
func (s *Schedule) Sent(t *Job, now bucket.Micros) {
	t.Unsent = false
	if now > s.latest(t) {
		t.Queue.slipped = t.Grant.TAT - t.Grant.At + now
	}
	s.Touch(t.Queue)
}

// unstage takes a staging task back out, to be settled without a call.
func (s *Schedule) Unstage(t *Job) {
	s.noProbe(t)
	t.Phase = Settling
	s.staged--
	s.Touch(t.Queue)
}

// unconnected takes a staging task back out for which there is no connection: that is a call that failed, and is to be heard of. A
// probe is the probe until then.
func (s *Schedule) Unconnected(t *Job) {
	probe := s.probe == t
	s.Unstage(t)
	if probe {
		s.probe = t
	}
}

// ended reports that a task's call has ended; its outcome is being stored.
func (s *Schedule) Ended(t *Job) {
	t.Phase = Settling
	t.called = true
	s.calls--
	s.settling++
	s.Touch(t.Queue)
	s.PermitFreed()
}

// permitFreed reports that the store may have an in-flight permit again.
func (s *Schedule) PermitFreed() {
	if s.blocked.size > 0 && s.byInFlight() {
		s.until = 0
	}
}

// byInFlight reports whether the limit that blocks is one of calls running at once.
func (s *Schedule) byInFlight() bool {
	for i := range s.Rules.Shared {
		if l := &s.Rules.Shared[i]; l.Name == s.by {
			return l.InFlight > 0
		}
	}
	return false
}

// rest lets a task wait for its retry. Its message is dropped from memory.
func (s *Schedule) Rest(t *Job, notBefore bucket.Micros) {
	s.noProbe(t)
	s.cleared(t)
	s.settled(t)
	t.Phase, t.NotBefore = resting, notBefore
	t.unload()
	s.Touch(t.Queue)
}

// settled counts out a call whose outcome is stored.
func (s *Schedule) settled(t *Job) {
	if t.called {
		t.called = false
		s.settling--
	}
}

// finished lets go of a settled task.
func (s *Schedule) Finished(t *Job) {
	s.settled(t)
	s.cleared(t)
	if t.lapsed {
		s.lapsing--
	}
	t.unload()
	t.Queue.remove(t)
	s.Unfinished--
	s.Touch(t.Queue)
}

// postpone lets a staging task rest until shortly before a slot that turned out to be far.
func (s *Schedule) Postpone(t *Job, slot bucket.Micros) {
	s.Unstage(t)
	s.Rest(t, slot.Add(-s.pace.PrepareLead))
	t.limited = true
}
