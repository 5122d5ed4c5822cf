package schedule

import "weir/bucket"

// Loaded reports that a job's message is loaded and, if it needs one, its intent stored.
func (s *Schedule) Loaded(j *Job) {
	j.Phase = ready
	s.Touch(j.Queue)
}

// Sent reports that a job's request has left at now, or that its call has ended without leaving. The calls behind it
// must not come too close to it. So if it left later than its slot allows, the queue's later slots are given back, and
// the queue continues from this call. Sent does nothing if it was already called for the job's slot. more is false if
// nothing waited for the call to leave.
func (s *Schedule) Sent(j *Job, now bucket.Micros) (more bool) {
	if !j.leaving {
		return false
	}
	more = s.Pipe.exit.isFull() && s.turns.Asking() > 0
	s.Pipe.exit.leave(j)
	if now > s.store.latest(j) {
		j.Queue.slip(j.Grant, now)
		s.Touch(j.Queue)
	} else {
		s.Pipe.exit.inTime(s.Pipe.pace.MaxCalls)
	}
	if j.Unsent {
		more, j.Unsent = true, false
		s.Touch(j.Queue)
	}
	return s.gate.freed() || more
}

// Unstage removes a staging job from the pipeline, or ends the look at a job. The job is then settled without a call.
func (s *Schedule) Unstage(j *Job) {
	(&step{Schedule: s}).unstage(j)
	s.packs.loosen(&s.agenda)
}

// Unconnected removes a staging job from the pipeline for which no connection could be opened. This counts as a failed
// call, and the dispatcher must report the call's end. If the job is the probe, it stays the probe until then.
func (s *Schedule) Unconnected(j *Job) {
	probe := s.Holds.breaker.probe == j
	s.Unstage(j)
	if probe {
		s.Holds.breaker.probe = j
	}
}

// Ended reports that a job's call has ended and its outcome is being stored. actual is what the call took from the
// shared limits; nil if it took what it had reserved.
func (s *Schedule) Ended(j *Job, actual []int64, now bucket.Micros) {
	s.Pipe.end(j)
	s.Pipe.part(j)
	s.Shared.Settled(&j.Call, j.At, actual, now)
	s.Touch(j.Queue)
	s.PermitFreed()
	s.gate.freed()
}

// Rest lets a job wait for its retry and drops its message from memory.
func (s *Schedule) Rest(j *Job, notBefore bucket.Micros) {
	s.Holds.breaker.letGo(j)
	s.suspects.clear(j, &s.agenda)
	s.Pipe.settled(j)
	if s.Pipe.polling.letGo(j) {
		s.gate.freed()
	}
	j.Phase, j.NotBefore = resting, s.Holds.restAt(j, notBefore)
	j.unload()
	s.Touch(j.Queue)
}

// Finished removes a settled job.
func (s *Schedule) Finished(j *Job) {
	s.Pipe.settled(j)
	s.suspects.clear(j, &s.agenda)
	s.agenda.ended(j)
	if s.Pipe.polling.letGo(j) {
		s.gate.freed()
	}
	s.looks.leave(j)
	j.unload()
	j.Queue.remove(j)
	s.census.unfinished--
	s.Touch(j.Queue)
}

// Postpone lets a staging job rest, because its slot turned out to be far off. The job rests until shortly before the
// slot.
func (s *Schedule) Postpone(j *Job, slot bucket.Micros) {
	s.Unstage(j)
	s.Rest(j, s.Pipe.lead(slot))
	j.limited = true
}

// Cancelled is the result of a request to cancel a job: a closed set.
type Cancelled string

// The results.
const (
	CancelTaken   Cancelled = "cancelled" // the job becomes a letter
	CancelCalling Cancelled = "calling"   // its call runs, or its outcome is being stored: too late
	CancelReading Cancelled = "reading"   // the owner still reads its queue after a start or a takeover: try again
	CancelGone    Cancelled = "gone"      // there is no such job, or it has ended
)

// Cancel ends a job that is not being called: the job never takes a slot again, and becomes a letter. If the job is
// polled, the api is first asked about its operation once more, and the job may end with a result.
func (s *Schedule) Cancel(key string, seq uint64) (*Job, Cancelled) {
	q := s.byKey[key]
	switch {
	case q == nil || !q.has(seq):
		return nil, CancelGone
	case !q.Partition.Open, q.Unread:
		return nil, CancelReading
	}
	j := q.Job(seq)
	if j == nil {
		j = s.Extract(q, seq)
	}
	switch leader, _ := q.leaderOf(seq); {
	case j.Phase == calling || j.Phase == settling, leader != nil && leader.Phase == calling:
		return nil, CancelCalling
	case j.cancelled:
		return j, CancelTaken
	case j.Phase == polled:
		j.cancelled = true
		s.Pipe.polling.cancelled = append(s.Pipe.polling.cancelled, j)
		s.Touch(q)
		return j, CancelTaken
	}
	j.cancelled, q.cancels = true, true
	s.Touch(q)
	return j, CancelTaken
}
