package lane

import (
	"fmt"
	"time"

	"weir/bucket"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/reuse"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// Equals holds what a lane knows of equal jobs and their answers. It exists only if answers of the api may be given
// again. The lane's lock guards it.
type Equals struct {
	Rule    *reuse.Rule // the present rule
	Answers *reuse.Answers
	jobs    reuse.Groups[*Job]
}

// AdoptReuseLocked applies the present terms to Equals. If they compare other parts of a job, an answer is looked up
// again for the jobs that waited for each other.
func (l *Lane) AdoptReuseLocked() {
	next, e := l.Terms.API.Reuse, l.Equals
	if e != nil && !e.Rule.CompareAlike(next) {
		for _, j := range e.jobs.All() {
			e.jobs.Leave(j)
			l.Sched.Waken(j.Job, true)
		}
		l.Equals = nil
	}
	switch {
	case next == nil:
	case l.Equals == nil:
		l.Equals = &Equals{Rule: next, Answers: reuse.NewAnswers(next.Bytes)}
	default:
		e.Rule = next
		e.Answers.Bound(next.Bytes)
	}
}

// CompareLocked compares a job whose message is loaded with the jobs that ask the same thing. There are three cases. If
// a is not nil, the job may end with this answer. If gone is true, the job waits, for the answer of its leader or for
// its slot. Otherwise the job must be called. It then leads the jobs that ask the same thing, unless another job does.
func (l *Lane) CompareLocked(j *Job, s reuse.Sum) (a *reuse.Answer, gone bool) {
	e, may, ahead := l.Equals, j.mayForgo(), j.LooksAhead()
	if had, _, held := e.jobs.Held(j); held && had != s { // the api now gets other headers of the job than before
		l.LeaveLocked(j)
	}
	if may {
		if found, ok := e.Answers.Find(s, l.oldestLocked()); ok {
			return &found, false
		}
		if leader, leads := e.jobs.Leader(s); leads && leader != j && e.jobs.Wait(j, s) {
			j.DropIntentsLocked()
			j.Orders = nil
			l.Sched.Looked(j.Job, schedule.Look{Awaits: leader.nameFor(j)})
			return nil, true
		}
		if ahead {
			e.jobs.Wait(j, s) // when an answer to s comes, it is looked up for the job
		}
	}
	if ahead {
		l.Sched.Looked(j.Job, schedule.Look{})
	} else if !e.jobs.Lead(j, s) {
		e.jobs.Leave(j)
	}
	return nil, ahead
}

// mayForgo reports whether a job may end without a call of its own. It may not if one of its calls may have had an
// effect. Calls before a redrive count, too.
func (j *Job) mayForgo() bool {
	if j.MustCall {
		return false
	}
	before := deadletter.NotBilled
	if j.Message.Redrives > 0 {
		before = before.Worst(deadletter.Billed(j.Message.Header.Get(deadletter.HeaderBilled)))
	}
	return j.Calls == 0 && before.Worst(j.Doubt.Charged()) == deadletter.NotBilled
}

// oldestLocked returns the time before which an answer must have come to be too old to be given again.
func (l *Lane) oldestLocked() bucket.Micros { return l.Now().Add(-l.Equals.Rule.For) }

// nameFor returns a text that names the job in reports about other, which waits for the job's answer.
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

// LeaveLocked removes a job from the group of its equal jobs, because it has ended or will not be called soon. If the
// job led the group, the first other job whose turn comes is called.
func (l *Lane) LeaveLocked(j *Job) {
	if l.Equals == nil {
		return
	}
	for _, waited := range l.Equals.jobs.Leave(j) {
		l.Sched.Waken(waited.Job, false)
	}
}

// retryAwaited is the longest time for which jobs wait for the retry of the job that leads them. A key may be held for
// a day, and must not hold up all keys whose next jobs ask the same thing.
const retryAwaited = 10 * time.Second

// LeadRestedLocked decides whether jobs go on waiting for a leader that rests. They do only if the leader was called,
// and will soon be called again.
func (l *Lane) LeadRestedLocked(j *Job) {
	if j.Calls == 0 || j.NotBefore > l.Now().Add(retryAwaited) {
		l.LeaveLocked(j)
	}
	l.LeaveIdleLocked(j.Queue)
}

// LeaveIdleLocked ends the waits for the answers of a key's resting jobs if the key will not be called within
// retryAwaited. The reason may be a hold, a slow rate of its own, or operations that have all its calls in flight. It
// does this only if keys share answers. If the key is paused, it ends these waits in any case. It then also ends the
// waits for the key's operations, because they are not polled.
func (l *Lane) LeaveIdleLocked(q *schedule.KeyQueue) {
	if q == nil || l.Equals == nil {
		return
	}
	paused := l.Sched.Holds.IsPaused(q)
	if !paused && (!l.Equals.Rule.AcrossKeys || l.Sched.At(l.Now()).Callable(q) <= l.Now().Add(retryAwaited)) {
		return
	}
	for t := range q.Idle {
		if j, begun := t.Of.(*Job); begun && (paused || j.Rests()) {
			if _, leads, _ := l.Equals.jobs.Held(j); leads {
				l.LeaveLocked(j)
			}
		}
	}
}

// LearnLocked remembers an answer, and makes the jobs that wait for such an answer look it up.
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

// EqualsState reports the remembered answers of an api, and the jobs that wait for answers, as far as this process
// knows.
type EqualsState struct {
	Answers int   `json:"answers"` // that are remembered
	Bytes   int64 `json:"bytes"`   // that they take in memory
	Waiting int   `json:"waiting"` // jobs that wait for an equal one's answer
}

// EqualsStateLocked returns the EqualsState, nil if every job is called.
func (l *Lane) EqualsStateLocked() *EqualsState {
	e := l.Equals
	if e == nil {
		return nil
	}
	return &EqualsState{Answers: e.Answers.Len(), Bytes: e.Answers.Bytes(), Waiting: e.jobs.Waiting()}
}

// RequestOf returns the sum of the request of a job that leads equal jobs, if the answer r may be given to them. The
// sum is computed by the configuration under which the job was made ready: after a change of configuration the job
// leads no other job. A job that an earlier process has called leads none either.
func (l *Lane) RequestOf(j *Job, r *httpcall.Response) (s reuse.Sum, ok bool) {
	if j.Terms.API.Reuse == nil || !r.IsReusable() {
		return s, false
	}
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if l.Equals == nil {
		return s, false
	}
	s, leads, _ := l.Equals.jobs.Held(j)
	return s, leads
}
