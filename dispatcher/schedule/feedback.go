package schedule

import (
	"time"

	"weir/bucket"
)

// CallEnd is the end of a job's call as the dispatcher reports it to the schedule. At most one of Again,
// PushedBack and Denied is set.
type CallEnd struct {
	Again        bool          // the job may be called again: the call failed
	PushedBack   bool          // the api says "not now"
	Denied       bool          // the api denies weir itself, whatever the job
	Fault        bool          // the api did not answer, or answered with a fault of its own
	Sent         bool          // at least one byte of the request was sent
	After        time.Duration // the least wait before the job's next call, because the api asks for it
	Hold         Advice        // what the api says about all calls to come
	Detail       string
	Mend         string // what an operator must do, if denied
	Started, Now bucket.Micros
	Jitter       float64 // from 0 to 1
}

// Feedback is what the end of a call means beyond the end of its own job.
type Feedback struct {
	NotBefore bucket.Micros // of the job's next call, if there will be one
	Free      bool          // the call does not count as an attempt
	First     bool          // the call is the first failure in a row
	Hold      HoldChange    // a hold that nothing else keeps over a restart; none if Until is 0
	News      []HoldChange
	Denied    bool // the first of News is a denial, which must be kept over a restart
}

// HoldChange is a hold that has begun, or one that has ended if Until is 0. A nil Queue stands for the api.
type HoldChange struct {
	Queue *KeyQueue
	Until bucket.Micros
	Why   string
}

// OnCallEnd takes in what the end of a job's call says about the calls to come. It only ever slows them, except
// that the probe's answer closes the breaker.
func (s *Schedule) OnCallEnd(j *Job, e CallEnd) Feedback {
	f := Feedback{NotBefore: e.Now.Add(e.After)}
	j.judged = e.Now
	if e.Denied {
		s.onDenial(j, e, &f)
		return f
	}
	s.onFault(j, e, &f)
	retry, scope, pushes := &j.Policy.Retry, j.Queue, &j.Queue.pushes
	if retry.HoldAPI {
		scope, pushes = nil, &s.pushes
	}
	var wait time.Duration
	switch {
	case e.PushedBack:
		*pushes = min(*pushes+1, 100)
		if wait = e.Hold.Wait; wait == 0 {
			wait = Backoff(retry.Min, retry.Max, int(*pushes), e.Jitter)
		}
		f.NotBefore = e.Now.Add(wait)
		s.lower(scope, retry.Adaptive, e)
	case e.Fault:
		j.Queue.pushes, s.pushes = 0, 0
	default:
		j.Queue.pushes, s.pushes = 0, 0
		s.welcome = max(s.welcome, e.Started)
		s.governor.answered(e.Started, e.Now)
		if g := j.Queue.governor; g != nil {
			g.answered(e.Started, e.Now)
		}
	}
	if !e.PushedBack && e.Hold.Header != "" {
		if wait = e.Hold.Wait; e.Hold.Spent {
			wait = retry.Min
		}
	}
	if wait > 0 {
		n := HoldChange{scope, e.Now.Add(wait), e.why()}
		s.holdFor(n, e.Now, &f)
		if !e.PushedBack {
			f.Hold = n
		}
	}
	return f
}

// why returns what a hold is for.
func (e CallEnd) why() string {
	why := "the api says that no call is left"
	if e.PushedBack {
		why = e.Detail
	}
	if e.Hold.Header != "" {
		why += " (" + e.Hold.Header + ")"
	}
	return why
}

// holdFor holds a queue or the api. That is news unless it is held already.
func (s *Schedule) holdFor(n HoldChange, now bucket.Micros, f *Feedback) {
	held := s.held
	if n.Queue != nil {
		held = n.Queue.held
	}
	s.Hold(n.Queue, n.Until, n.Why)
	if held <= now {
		f.News = append(f.News, n)
	}
}

// onFault tells the breaker how a call ended. A call that failed while the breaker was open and of which nothing
// was sent uses up no attempt: the job is not to blame. A call that was sent does use one up: no job is called
// more often than it has attempts, whatever caused the failure.
func (s *Schedule) onFault(j *Job, e CallEnd, f *Feedback) {
	o, probe := j.Policy.Breaker, s.breaker.probe == j
	f.Free = e.Fault && e.Again && !e.Sent && !s.breaker.closed()
	switch {
	case probe:
		s.breaker.probe = nil
		if s.breaker.denied {
			o = denialPace(&j.Policy.Retry)
		}
		if e.Fault || s.breaker.denied && e.PushedBack { // pushback does not say that the api accepts weir again
			s.breaker.open(o, e.Now, e.Jitter)
			s.tripped(e, f)
			break
		}
		why := "the api answers again"
		if s.breaker.denied {
			why = "the api accepts weir's calls again"
		}
		s.breaker.close(e.Now)
		s.governor.restart(e.Now)
		f.News = append(f.News, HoldChange{Why: why})
	case !e.Fault:
		s.breaker.worked(e.Started)
	case s.breaker.failed(o, e.Started, e.Now, e.Jitter):
		s.tripped(e, f)
	}
	f.First = e.Fault && s.breaker.closed() && s.breaker.failures == 1
	j.tripped = e.Fault && !s.breaker.closed()
	if j.tripped {
		f.NotBefore = max(f.NotBefore, s.breaker.until.Add(probeTurn)) // another job must be the next probe
	}
}

// tripped reports that the breaker has opened. Ready jobs go back.
func (s *Schedule) tripped(e CallEnd, f *Feedback) {
	if !s.breaker.denied {
		s.breaker.why = e.Detail
	}
	f.News = append(f.News, HoldChange{Until: s.breaker.until, Why: s.breaker.reason()})
	s.touchAll()
}

// probeTurn is for how long the job whose call was the probe lets other jobs go first.
const probeTurn = time.Second

// lower makes pushback lower the rate, if the rate adapts.
func (s *Schedule) lower(scope *KeyQueue, a *Adaptive, e CallEnd) {
	if a == nil {
		return
	}
	g := &s.governor
	if scope != nil {
		if scope.governor == nil {
			scope.governor = &governor{}
		}
		g = scope.governor
	}
	g.pushedBack(a, e.Started, e.Now)
}

// Advice is what an answer's headers say about the calls to come.
type Advice struct {
	Wait   time.Duration // from the answer to the next call, at most MostHold
	Header string        // the header that says so, in lower case; "" if none does
	Spent  bool          // nothing is left, and no header says until when
}
