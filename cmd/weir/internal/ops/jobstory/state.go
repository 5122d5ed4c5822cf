package jobstory

import (
	"fmt"

	"weir/cmd/weir/internal/cli"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
)

// conclude derives the job's state from its steps. A job that is still in its queue may have ended already, because its
// message is deleted a little later.
func (j *Job) conclude() {
	spent, settled := ledger.Spending{}, j.settled()
	isQueued := j.Queue != nil && j.Queue.State != nil
	var last *Step // the last step that ends a job
	for i := range j.Steps {
		s := &j.Steps[i]
		if s.What == Called || s.What == Polled {
			billed := s.Billed
			if found, ok := settled[callOf(s)]; ok && s.What == Called && billed == deadletter.BilledUnknown {
				billed = found
			}
			spent.Add(s.Price, billed)
		}
		ends := s.What == Result || s.What == Buried || s.What == Forgone || (s.What == Called || s.What == Polled) && s.Outcome == ledger.Done ||
			s.found == httpcall.Processed && j.Dead == nil // its result was stored, and is not kept any more
		if ends && (last == nil || s.At.After(last.At)) {
			last = s
		}
	}
	j.Spent, j.Doubt = ledger.Money(spent.Spent), ledger.Money(spent.InDoubt)
	switch {
	case isQueued && (last == nil || j.Queue.Accepted.After(last.At)):
		j.State = Queued
	case last != nil && last.What == Buried:
		j.State = Dead
	case last != nil:
		j.State = Done
	case j.Queue != nil:
		j.State = Queued
	}
	if j.State != Queued {
		j.Queue = nil
	}
	if j.State != Dead {
		j.Dead = nil
	}
}

// callName identifies a call of a job.
type callName struct {
	origin string
	number int
}

func callOf(s *Step) callName { return callName{s.origin, s.Call} }

// settled returns how calls were billed, if an inquiry has found that out.
func (j *Job) settled() map[callName]deadletter.Billed {
	all := map[callName]deadletter.Billed{}
	for i := range j.Steps {
		if s := &j.Steps[i]; s.What == Asked && s.Billed != deadletter.BilledUnknown {
			all[callOf(s)] = s.Billed
		}
	}
	return all
}

// Text says in one sentence where the job is and what it waits for.
func (j *Job) Text() string {
	switch j.State {
	case Queued:
		return j.Queue.text()
	case Done:
		return "done"
	case Dead:
		return fmt.Sprintf("dead letter %d (%s); billed: %s; `weir dead show %d` has all of it", j.Dead.Seq, j.Dead.Reason, j.Dead.Billed, j.Dead.Seq)
	case Unknown:
	}
	return "ended, or still to come: nothing that is kept says how"
}

// text describes the job's state in its queue.
func (q *Queue) text() string {
	if q.State == nil {
		return fmt.Sprintf("waits in a bucket of %s", cli.Count(q.Depth, "job"))
	}
	if q.State.Phase == schedule.JobCalling || q.State.Phase == schedule.JobEnding {
		return fmt.Sprintf("%s: call %d", q.State.Phase, q.State.Calls)
	}
	if q.State.Phase == schedule.JobPolling {
		return "polling: the api has accepted it and goes on working"
	}
	text := fmt.Sprintf("%s, at place %d of %d", q.State.Phase, q.State.Position, q.Depth)
	if q.State.Priority != "" {
		text += ", with priority " + q.State.Priority
	}
	if q.State.Awaits != "" {
		text += ", waits for an answer: " + q.State.Awaits
	}
	if q.State.ETA != nil {
		text += ", to be called at " + cli.ClockTime(*q.State.ETA)
	}
	return text
}
