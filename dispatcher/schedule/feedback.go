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
	Denied       bool          // weir has no access to the api, whatever the job
	Fault        bool          // the api did not answer, or answered with a fault of its own
	Sent         bool          // at least one byte of the request was sent
	After        time.Duration // the least wait before the job's next call, because the api asks for it
	Hold         Advice        // what the api says about all later calls
	Detail       string
	Mend         string // what an operator must do, if denied
	Started, Now bucket.Micros
	Jitter       float64 // from 0 to 1
}

// Feedback is what the end of a call means for later calls, of its own job and of others.
type Feedback struct {
	NotBefore bucket.Micros // of the job's next call, if there will be one
	Free      bool          // the call does not count as an attempt
	First     bool          // the call is the first failure in a row
	Hold      HoldChange    // a hold that has no other mark to survive a restart; none if Until is 0
	Account   HoldChange    // a hold of all apis of the account; none if Until is 0
	News      []HoldChange
	Denied    bool // the first of News is a denial, which must survive a restart
}

// HoldChange is a hold that has begun, or one that has ended if Until is 0. A nil Queue stands for the api.
type HoldChange struct {
	Queue *KeyQueue
	Until bucket.Micros
	Why   string
}

// OnCallEnd decides what the end of a job's call means for later calls. It only ever slows them, except that the
// probe's answer closes the breaker. A call that the job itself kept from being sent says nothing about the api.
func (s *Schedule) OnCallEnd(j *Job, e CallEnd) Feedback {
	f := Feedback{NotBefore: e.Now.Add(e.After)}
	j.judged = e.Now
	if e.Denied {
		if s.Holds.onDenial(j, e, s.policy, &f) {
			s.agenda.touchAll()
		}
		return f
	}
	if !e.Sent && !e.Fault {
		s.Holds.breaker.letGo(j)
		return f
	}
	if s.Holds.onFault(j, e, &f) {
		s.agenda.touchAll()
	}
	if held := s.Holds.onAnswer(j, e, &f); held != nil {
		s.Touch(held)
	}
	return f
}

// onAnswer applies what the end of a call says about when later calls may start. It returns the queue that it holds,
// nil if it holds the api or nothing.
func (h *Holds) onAnswer(j *Job, e CallEnd, f *Feedback) *KeyQueue {
	retry, scope, own := &j.Policy.Retry, j.Queue, &j.Queue.brake
	pushes := &own.pushes
	if retry.HoldAPI {
		scope, pushes = nil, &h.pushes
	}
	var wait time.Duration
	switch {
	case e.PushedBack:
		*pushes = min(*pushes+1, 100)
		if wait = e.Hold.Wait; wait == 0 {
			wait = Backoff(retry.Min, retry.Max, int(*pushes), e.Jitter)
		}
		f.NotBefore = e.Now.Add(wait)
		h.lower(scope, retry.Adaptive, e)
	case e.Fault:
		own.pushes, h.pushes = 0, 0
	default:
		own.pushes, h.pushes = 0, 0
		h.welcome = max(h.welcome, e.Started)
		h.governor.answered(e.Started, e.Now)
		if own.governor != nil {
			own.governor.answered(e.Started, e.Now)
		}
	}
	if !e.PushedBack && e.Hold.Header != "" {
		if wait = e.Hold.Wait; e.Hold.Spent {
			wait = retry.Min
		}
	}
	if wait <= 0 {
		return nil
	}
	n := HoldChange{scope, e.Now.Add(wait), e.why()}
	former := h.held
	if scope != nil {
		former = own.held
	}
	h.hold(scope, n.Until, n.Why)
	if scope == nil {
		h.common.found(n.Until, n.Why)
	}
	if former <= e.Now {
		f.News = append(f.News, n)
	}
	if !e.PushedBack {
		f.Hold = n
	}
	if retry.HoldAccount {
		f.Account = n
	}
	return scope
}

// why returns the reason for the hold that the call's end causes.
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

// onFault reports to the breaker how a call ended. A call that failed while the breaker was open, and of which nothing
// was sent, uses up no attempt: the job is not to blame. A call that was sent does use one up: no job is called more
// often than it has attempts, whatever caused the failure. onFault reports whether the breaker opened; the caller must
// then withdraw ready jobs.
func (h *Holds) onFault(j *Job, e CallEnd, f *Feedback) (opened bool) {
	b := &h.breaker
	o, probe := j.Policy.Breaker, b.probe == j
	f.Free = e.Fault && e.Again && !e.Sent && !b.closed()
	switch {
	case probe:
		b.probe = nil
		if b.denied {
			o = denialPace(&j.Policy.Retry)
		}
		if e.Fault || b.denied && e.PushedBack { // pushback does not say that the api accepts weir again
			h.common.opens(e.Sent, b)
			b.open(o, e.Now, e.Jitter)
			opened = true
			break
		}
		why := answersAgain(b.denied)
		b.close(e.Now)
		h.common.closes()
		h.governor.restart(e.Now)
		f.News = append(f.News, HoldChange{Why: why})
	case !e.Fault:
		b.worked(e.Started)
	case b.failed(o, e.Started, e.Now, e.Jitter):
		h.common.opens(e.Sent, &breaker{})
		opened = true
	}
	if opened {
		if !b.denied {
			b.why = e.Detail
		}
		f.News = append(f.News, HoldChange{Until: b.until, Why: b.reason()})
	}
	f.First = e.Fault && b.closed() && b.failures == 1
	j.tripped = e.Fault && !b.closed()
	if j.tripped {
		f.NotBefore = max(f.NotBefore, b.until.Add(probeTurn)) // another job must be the next probe
	}
	return opened
}

// probeTurn is how long a job whose call failed while the breaker was open lets other jobs go first.
const probeTurn = time.Second

// lower lowers the rate after pushback, if the configuration says adaptive.
func (h *Holds) lower(scope *KeyQueue, a *Adaptive, e CallEnd) {
	if a == nil {
		return
	}
	g := &h.governor
	if scope != nil {
		if scope.brake.governor == nil {
			scope.brake.governor = &governor{}
		}
		g = scope.brake.governor
	}
	g.pushedBack(a, e.Started, e.Now)
	h.common.unsaid = h.common.unsaid || h.common.on && scope == nil
}

// Advice is what an answer's headers say about later calls.
type Advice struct {
	Wait   time.Duration // from the answer to the next call, at most MostHold
	Header string        // the header that says so, in lower case; "" if none does
	Spent  bool          // nothing is left, and no header says until when
}
