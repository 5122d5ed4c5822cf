package schedule

import (
	"math"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/limits"
)

// breaker stops the calls of an api that keep failing. Such calls use up attempts, and on an api that is not idempotent
// they leave jobs in an unknown state. While the breaker is open, no call is made. Then one call is made, the probe. If
// it fails, the breaker opens again, for longer; otherwise the breaker closes. The zero breaker is closed.
//
// A failure is a call without an answer, or one answered with a fault of the api's own. Pushback is not a
// failure.
type breaker struct {
	failures int           // in a row, counted while it is closed
	opened   int           // how often in a row it has opened without closing
	until    bucket.Micros // until when it stays open; 0: it is closed
	turned   bucket.Micros // when it opened or closed last; ends of calls that started before do not count
	why      string        // the failure that opened it
	denied   bool          // a denial of weir opened it, not failures
	probe    *Job          // the one call that may be made while it is not closed
}

// reason returns why the breaker is open.
func (b *breaker) reason() string {
	if b.denied {
		return b.why
	}
	return "its calls keep failing: " + b.why
}

// trying returns the reason for the probe, as operators read it.
func (b *breaker) trying() string {
	if b.denied {
		return "one call tries whether the api accepts weir again: " + b.why
	}
	return "one call tries whether the api answers again"
}

func (b *breaker) closed() bool { return b.until == 0 }

// halfOpen reports whether one call may be made to see whether the api works again.
func (b *breaker) halfOpen(now bucket.Micros) bool { return b.until != 0 && b.until <= now }

// hasTried reports whether a job's call failed since the breaker opened. A probe costs an attempt, so the next
// probe should be another job, if there is one.
func (b *breaker) hasTried(j *Job) bool { return j != nil && j.tripped && !b.closed() }

// yields reports whether a job lets other callable jobs go first because its call failed since the breaker opened. It
// returns true for a job only once each time the breaker opens.
func (b *breaker) yields(j *Job) bool {
	if !b.hasTried(j) || j.yielded == b.opened {
		return false
	}
	j.yielded = b.opened
	return true
}

// mayCall reports whether the breaker lets a job be called.
func (b *breaker) mayCall(j *Job) bool { return b.closed() || b.probe == j }

// try makes a job the probe when the job is made ready, unless the breaker is closed.
func (b *breaker) try(j *Job) {
	if !b.closed() {
		b.probe = j
	}
}

// letGo clears the probe if j is the probe, because j is not called now.
func (b *breaker) letGo(j *Job) {
	if b.probe == j {
		b.probe = nil
	}
}

// failed counts a failed call that is not the probe, and reports whether that opened the breaker. jitter is from
// 0 to 1.
func (b *breaker) failed(o BreakerPolicy, started, now bucket.Micros, jitter float64) (opened bool) {
	if !b.closed() || o.Failures == 0 || started < b.turned {
		return false
	}
	if b.failures++; b.failures < o.Failures {
		return false
	}
	b.open(o, now, jitter)
	return true
}

// worked resets the count of failures after an answered call that is not the probe.
func (b *breaker) worked(started bucket.Micros) {
	if b.closed() && started >= b.turned {
		b.failures = 0
	}
}

// open opens the breaker, or opens it again after a failed probe. jitter is from 0 to 1.
func (b *breaker) open(o BreakerPolicy, now bucket.Micros, jitter float64) {
	b.opened = min(b.opened+1, 60)
	b.until, b.turned, b.failures = now.Add(max(openFor(o, b.opened, jitter), time.Microsecond)), now, 0
}

// openFor returns how long the breaker stays open when it opens the n-th time in a row. The longest such time doubles
// with n. openFor draws between three quarters of it and the whole, so that replicas do not probe together.
func openFor(o BreakerPolicy, n int, jitter float64) time.Duration {
	d := math.Min(float64(o.Min)*math.Pow(2, float64(n-1)), float64(o.Max))
	return time.Duration(d - d/4*jitter)
}

// close closes the breaker after an answered probe.
func (b *breaker) close(now bucket.Micros) { *b = breaker{turned: now} }

// BreakerPolicy says when the breaker stops the calls of an api.
type BreakerPolicy struct {
	Failures int           // failures in a row that open the breaker; 0: none do
	Min, Max time.Duration // bounds of the time that the breaker stays open, which doubles each time in a row
}

// governor keeps the calls of a key, or of a whole api, below the configured rate while there is reason to. It only
// ever slows: a call that it allows still needs a grant. The zero governor slows nothing.
//
// After a hold the calls start slowly, with a sixteenth of the rate. The share doubles after every round trip without
// pushback, until it is the whole rate. If the api adapts, pushback halves a ceiling, which grows back by the clock. A
// pushback of a call that started before the ceiling was lowered does not lower it again: calls that ran at the same
// time count as one pushback.
type governor struct {
	ramp    int64         // share of the rate that the slow start allows; 0: there is no slow start
	ceiling int64         // share of the rate that pushback has left; 0: all of it
	began   bucket.Micros // when the last slow start began: slots asked for before do not belong to it
	turned  bucket.Micros // when the ramp was set or doubled last
	lowered bucket.Micros // when the ceiling was lowered last
	grown   bucket.Micros // the time up to which the ceiling has grown
	next    bucket.Micros // no slot for the next call may be asked for before
}

// The units in which shares are counted.
const (
	whole     = 1 << 10
	slowStart = whole / 16
)

// mostRamp bounds the pause between two calls that a slow start makes. A key whose own interval is longer is not slowed
// further.
const mostRamp = time.Second

// restart begins a slow start: a hold has ended.
func (g *governor) restart(now bucket.Micros) {
	g.ramp, g.began, g.turned, g.next = slowStart, now, now, max(g.next, now)
}

// pushedBack lowers the ceiling for a call that started at started and was pushed back at now.
func (g *governor) pushedBack(a *Adaptive, started, now bucket.Micros) {
	if a == nil || started <= g.lowered {
		return
	}
	g.grow(a, now)
	share := int64(whole)
	if g.ceiling != 0 {
		share = g.ceiling
	}
	if g.ceiling = max(share/2, whole*a.Floor/100, 1); g.ceiling >= whole {
		g.ceiling = 0
	}
	g.lowered, g.grown = now, now
}

// answered doubles the ramp for a call that started at started and was answered at now without pushback.
func (g *governor) answered(started, now bucket.Micros) {
	if g.ramp == 0 || started < g.turned {
		return
	}
	if g.ramp *= 2; g.ramp >= whole {
		g.ramp = 0
	}
	g.turned = now
}

// grow lets the ceiling grow back up to now. If a is nil, the configuration asks for no ceiling any more, and grow
// removes it.
func (g *governor) grow(a *Adaptive, now bucket.Micros) {
	if g.ceiling == 0 || now <= g.grown {
		return
	}
	if a == nil {
		g.ceiling = 0
		return
	}
	steps := int64(whole) * int64(min(g.grown.Until(now), a.Recover)/time.Microsecond) / int64(max(a.Recover/time.Microsecond, 1))
	if g.ceiling += steps; g.ceiling >= whole {
		g.ceiling = 0
		return
	}
	g.grown = g.grown.Add(time.Duration(steps) * a.Recover / whole)
}

// slows reports whether calls must stay below the configured rate.
func (g *governor) slows() bool { return g.ramp != 0 || g.ceiling != 0 }

// pause returns the least time between this call and the next, at a rate of one call per interval; 0 if nothing slows.
func (g *governor) pause(interval time.Duration) time.Duration {
	interval = min(interval, limits.LongestInterval)
	var pause time.Duration
	if g.ceiling != 0 {
		pause = share(interval, g.ceiling)
	}
	if g.ramp != 0 {
		pause = max(pause, min(share(interval, g.ramp), max(interval, mostRamp)))
	}
	return pause
}

// share returns the interval at this share of the rate, rounded up to whole microseconds.
func share(interval time.Duration, of int64) time.Duration {
	micros := int64((interval + time.Microsecond - 1) / time.Microsecond)
	return time.Duration((micros*whole+of-1)/of) * time.Microsecond
}

// earliest returns when a slot for the next call may be asked for, 0 if nothing slows.
func (g *governor) earliest() bucket.Micros {
	if !g.slows() {
		return 0
	}
	return g.next
}

// granted notes that a call has its slot at the time at.
func (g *governor) granted(interval time.Duration, at bucket.Micros) {
	if g.slows() {
		g.next = max(g.next, at.Add(g.pause(interval)))
	}
}

// Adaptive says how the rate follows the api's pushback, below the configured rate.
type Adaptive struct {
	Floor   int64         // percent of the configured rate that always remain, 1 to 100
	Recover time.Duration // from nothing back to the whole rate, without pushback; above 0
}

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
			s.Queues.touchAll()
		}
		return f
	}
	if !e.Sent && !e.Fault {
		s.Holds.breaker.letGo(j)
		return f
	}
	if s.Holds.onFault(j, e, &f) {
		s.Queues.touchAll()
	}
	if held := s.Holds.onAnswer(j, e, &f); held != nil {
		s.Queues.Touch(held)
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
