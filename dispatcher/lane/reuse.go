package lane

import (
	"fmt"

	"weir/bucket"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/reuse"
	"weir/ingest"
)

// Equals is what a lane knows of equal jobs, if its api gives answers again. The lane's lock guards it.
type Equals struct {
	Rule    *reuse.Rule // the present one
	Answers *reuse.Answers
	jobs    reuse.Groups[*Job]
}

// Comparison says what is known of equal jobs of a job. At most one of its fields is set.
type Comparison struct {
	Answer *reuse.Answer // there is one
	Leader *Job          // it is being called, or waits for its next call
}

// AdoptReuseLocked follows the present terms. If what is compared has changed, the jobs that waited for each other are
// looked at again.
func (l *Lane) AdoptReuseLocked() {
	next, e := l.Terms.API.Reuse, l.Equals
	if e != nil && !e.Rule.CompareAlike(next) {
		for _, j := range e.jobs.All() {
			e.jobs.Leave(j)
			l.Sched.Waken(j.Job, true)
		}
		l.Equals = nil
	}
	l.Comparing.Store(next)
	switch {
	case next == nil:
	case l.Equals == nil:
		l.Equals = &Equals{Rule: next, Answers: reuse.NewAnswers(next.Bytes)}
	default:
		e.Rule = next
		e.Answers.Bound(next.Bytes)
	}
}

// CompareLocked returns what is known of jobs that ask the same thing as a job whose message is loaded.
func (l *Lane) CompareLocked(j *Job, s reuse.Sum) (c Comparison) {
	e := l.Equals
	if !j.mayForgo() {
		return c
	}
	if a, found := e.Answers.Find(s, l.oldestLocked()); found {
		c.Answer = &a
	} else if leader, leads := e.jobs.Leader(s); leads && leader != j {
		c.Leader = leader
	}
	return c
}

// mayForgo reports whether a job may end without a call of its own. A job that was called must be called again, also if
// that was in an earlier life: its call may have done something.
func (j *Job) mayForgo() bool {
	if j.MustCall {
		return false
	}
	before := deadletter.NotBilled
	if j.Message.Redrives > 0 {
		before = before.Worst(deadletter.Billed(j.Message.Header.Get(deadletter.HeaderBilled)))
	}
	return j.Calls == 0 && before.Worst(j.Doubt.Known()) == deadletter.NotBilled
}

// oldestLocked returns since when an answer must have been given to be given again.
func (l *Lane) oldestLocked() bucket.Micros { return l.Now().Add(-l.Equals.Rule.For) }

// AwaitLocked lets a job wait for its leader's answer.
func (l *Lane) AwaitLocked(j *Job, s reuse.Sum, leader *Job) {
	l.Equals.jobs.Wait(j, s)
	j.DropIntentsLocked()
	j.Orders = nil
	l.Sched.Await(j.Job, leader.nameFor(j))
}

// nameFor names the job in what another one says that it waits for.
func (j *Job) nameFor(other *Job) string {
	name := j.ID
	if j.Message != nil {
		name = j.Message.ID
	}
	if j.Queue.Key != other.Queue.Key {
		return fmt.Sprintf("job %s of key %s asks the same", name, ingest.Token(j.Queue.Key))
	}
	return fmt.Sprintf("job %s asks the same", name)
}

// LookedLocked lets a job wait for its slot, for which no answer was found. It is looked at again if there is one.
func (l *Lane) LookedLocked(j *Job, s reuse.Sum) {
	if j.mayForgo() {
		l.Equals.jobs.Wait(j, s)
	}
	l.Sched.Looked(j.Job)
}

// LeadLocked makes a job the one that is called for those that ask the same thing, unless another one is.
func (l *Lane) LeadLocked(j *Job, s reuse.Sum) {
	if !l.Equals.jobs.Lead(j, s) {
		l.Equals.jobs.Leave(j)
	}
}

// LeaveLocked ends a job's part among equal ones: it has ended, or was put back without a call. If it was to be called
// for others, the first of them that comes to its turn is called.
func (l *Lane) LeaveLocked(j *Job) {
	if l.Equals == nil {
		return
	}
	for _, waited := range l.Equals.jobs.Leave(j) {
		l.Sched.Waken(waited.Job, false)
	}
}

// LeavePausedLocked lets no job wait for one of a key that an operator has paused.
func (l *Lane) LeavePausedLocked(key string) {
	q := l.Sched.Find(key)
	if q == nil || l.Equals == nil {
		return
	}
	for _, t := range q.Jobs {
		if j, begun := t.Of.(*Job); begun && t.Rests() && l.Equals.jobs.Leads(j) {
			l.LeaveLocked(j)
		}
	}
}

// LearnLocked remembers an answer, and lets the jobs that ask the same thing look for it.
func (l *Lane) LearnLocked(s reuse.Sum, seq uint64, done bucket.Micros) {
	e := l.Equals
	if e == nil {
		return
	}
	e.Answers.Learn(reuse.Answer{Sum: s, Seq: seq, Done: done}, l.oldestLocked())
	for _, j := range e.jobs.Waiters(s) {
		l.Sched.Waken(j.Job, true)
	}
}

// EqualsState says how an api's answers are given again, as far as this process knows.
type EqualsState struct {
	Answers int   `json:"answers"` // that are remembered
	Bytes   int64 `json:"bytes"`   // that they take in memory
	Waiting int   `json:"waiting"` // jobs that wait for an equal one's answer
}

// EqualsStateLocked returns it, nil if every job is called.
func (l *Lane) EqualsStateLocked() *EqualsState {
	e := l.Equals
	if e == nil {
		return nil
	}
	return &EqualsState{Answers: e.Answers.Len(), Bytes: e.Answers.Bytes(), Waiting: e.jobs.Waiting()}
}

// RequestOf returns the sum of an answered job's request, by the present rule. ok is false if the answer may not be
// given again.
func (l *Lane) RequestOf(j *Job, r *httpcall.Response) (s reuse.Sum, ok bool) {
	rule := l.Comparing.Load()
	if rule == nil || !r.IsReusable() || rule.Target != j.Terms.API.Target() {
		return s, false
	}
	return rule.Of(j.Message), true
}
