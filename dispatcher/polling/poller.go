package polling

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/bucket"
	"weir/deadletter"
	"weir/dispatcher/desk"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
	"weir/dispatcher/settle"
)

// Poller polls the operations of an api's jobs. The lane's lock guards its agenda.
type Poller struct {
	*lane.Lane
	settler *settle.Settler
	agenda  agenda
	wake    chan struct{}
}

// New returns a poller of a lane's jobs.
func New(l *lane.Lane, s *settle.Settler) *Poller {
	return &Poller{Lane: l, settler: s, wake: make(chan struct{}, 1)}
}

// BeginLocked starts to poll the operation of a job. The job must be in the schedule as polled. The first poll is due
// when the configured interval has passed since the job's call, which may be at once.
func (w *Poller) BeginLocked(j *lane.Job) {
	now := w.Now()
	due := now
	if o := w.Terms.API.Operation; o != nil {
		due = max(now, w.Sched.Queues.Own(bucket.MicrosOf(j.Operation.Started)).Add(o.Every))
		due = min(due, now.Add(o.Every)) // the wall clock may have been set
	}
	w.agenda.add(&poll{job: j}, due)
	w.wakeUp()
}

// RecallLocked makes the poll of a job due at once, because an operator has cancelled the job.
func (w *Poller) RecallLocked(j *lane.Job) {
	w.agenda.hurry(j, w.Now())
	w.wakeUp()
}

func (w *Poller) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// idleCheck is the longest time between two looks at the agenda. No event tells the poller that the terms have changed.
const idleCheck = 5 * time.Second

// Run polls until ctx ends. Writes that end jobs may go on until hard ends.
func (w *Poller) Run(ctx, hard context.Context) {
	timer := time.NewTimer(idleCheck)
	defer timer.Stop()
	for ctx.Err() == nil {
		again := w.begin(ctx, hard)
		wait := idleCheck
		if again < schedule.Never-1 {
			wait = min(wait, max(0, w.Now().Until(again)))
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-w.wake:
		case <-ctx.Done():
		}
	}
}

// begin begins every poll that may begin now. It returns when the next one may begin.
func (w *Poller) begin(ctx, hard context.Context) (again bucket.Micros) {
	for ctx.Err() == nil {
		w.Mu.Lock()
		every := time.Duration(0)
		if o := w.Terms.API.Operation; o != nil {
			every = o.Rate.Per / time.Duration(max(1, o.Rate.Count))
		}
		terms := w.Terms
		p, at := w.agenda.take(w.Now(), every)
		w.Mu.Unlock()
		if p == nil {
			return at
		}
		w.Running.Go(func() {
			w.poll(ctx, hard, p, terms)
			w.Mu.Lock()
			w.agenda.ended()
			w.Mu.Unlock()
			w.wakeUp()
		})
	}
	return schedule.Never
}

// leaseRest is how long an operation rests if this replica may not poll it now.
const leaseRest = time.Second

// errNoOperation says that the api's configuration has no operation any more.
var errNoOperation = errors.New("the api's configuration has no operation any more: put it back, or cancel the job")

// poll polls one operation, and ends its job or lets it wait for its next poll.
func (w *Poller) poll(ctx, hard context.Context, p *poll, terms *lane.Terms) {
	j := p.job
	w.Mu.Lock()
	removed, recalled := j.Part.IsRemovedLocked(j.Seq), j.IsCancelled()
	paused := w.Sched.At(w.Now()).IsPaused(j.Queue.Key)
	over := w.isOverLocked(j)
	w.Mu.Unlock()
	rest := leaseRest
	if terms.API.Operation != nil {
		rest = terms.API.Operation.Every
	}
	switch {
	case removed:
		w.endMissing(hard, j)
	case !j.Part.MayCall():
		w.again(p, leaseRest)
	case recalled:
		w.recall(ctx, hard, p, terms)
	case paused:
		w.again(p, rest)
	case terms.Polls == nil && over:
		w.giveUp(hard, p, httpcall.Response{Started: time.Now(), Ended: time.Now()}, errNoOperation.Error())
	case terms.Polls == nil:
		w.fail(p, errNoOperation.Error(), time.Minute)
	default:
		r, means, detail := terms.Polls.Poll(ctx, j.Operation.Address, httpcall.Hooks{MayWrite: j.Part.MayCall})
		w.heed(ctx, hard, p, terms, answer{r, means, detail})
	}
}

// isOverLocked reports whether the time for polls of a job's operation is over.
func (w *Poller) isOverLocked(j *lane.Job) bool { return w.WallTime(w.Now()) >= j.Operation.Until }

// answer is the answer to a poll.
type answer struct {
	r      httpcall.Response
	means  httpcall.Finding
	detail string
}

// heed acts on the answer to a poll.
func (w *Poller) heed(ctx, hard context.Context, p *poll, terms *lane.Terms, a answer) {
	if ctx.Err() != nil {
		return // the next start polls it
	}
	w.count(a)
	w.Mu.Lock()
	over := w.isOverLocked(p.job)
	if a.means != httpcall.StillUnknown {
		w.agenda.understood(p)
	}
	w.Mu.Unlock()
	every := terms.API.Operation.Every
	if over {
		every = min(every, longestRest)
	}
	switch {
	case a.means == httpcall.OperationDone:
		w.done(hard, p.job, terms, a)
	case a.means == httpcall.OperationFailed:
		w.end(hard, p.job, a.r, deadletter.Rejected, "the operation failed: "+a.detail)
	case over && p.isGivenUp(a.means):
		w.giveUp(hard, p, a.r, a.detail)
	case a.means == httpcall.OperationRunning:
		w.again(p, max(every, w.heldBack(a.r)))
	case a.r.IsRefusedAccess():
		w.deny(p, a)
		w.fail(p, a.detail, every)
	default:
		w.fail(p, a.detail, max(every, w.heldBack(a.r)))
	}
}

// count counts a poll.
func (w *Poller) count(a answer) {
	outcome := string(a.means)
	if a.means == httpcall.StillUnknown {
		if outcome = "unclear"; a.r.Status == 0 {
			outcome = "no_answer"
		}
	}
	w.Env.Metrics.Polls.WithLabelValues(w.Name, outcome).Inc()
}

// heldBack returns how long an answer asks weir to wait. If the api pushed the poll back, heldBack also holds all polls
// for that time.
func (w *Poller) heldBack(r httpcall.Response) time.Duration {
	if wait := httpcall.PushedBackFor(r, time.Now()); wait > 0 {
		w.Mu.Lock()
		defer w.Mu.Unlock()
		w.agenda.hold(w.Now().Add(wait))
		return wait
	}
	return httpcall.AskedToWait(r, time.Now())
}

// deny holds all polls of the api, because it denies weir's access.
func (w *Poller) deny(p *poll, a answer) {
	w.Mu.Lock()
	until, first := w.agenda.denied(w.Now())
	w.Mu.Unlock()
	if first {
		w.LogOf(p.job).Warn("the api denies polls of its operations, which wait: check the api's headers in the configuration",
			"status", a.r.Status, "until", until.Time())
	}
}

// again lets an operation wait for its next poll. The poll is due after rest, or when the operation's time is over if
// that is sooner. If the store of slots is on another machine, it may have lost the slot that the operation holds, so
// again holds the slot once more. Only the partition's owner does so: a later owner may have ended the operation and
// given its slot back.
func (w *Poller) again(p *poll, rest time.Duration) {
	j := p.job
	w.Mu.Lock()
	defer w.Mu.Unlock()
	if !j.IsPolled() {
		return // another replica polls it
	}
	if w.Clock == schedule.OtherClock && j.Part.MayCall() {
		w.settler.Operations.HoldSlot(j)
	}
	now := w.Now()
	due := now.Add(rest)
	if over := w.Sched.Queues.Own(j.Operation.Until); over > now {
		due = min(due, over)
	}
	if j.IsCancelled() && !p.recalled { // it was cancelled during the poll
		due, p.recalled = now, true
	}
	w.agenda.add(p, due)
}

// fail lets an operation rest after a poll that said nothing.
func (w *Poller) fail(p *poll, why string, every time.Duration) {
	w.Mu.Lock()
	rest := w.agenda.failed(p, every, w.Now())
	w.Mu.Unlock()
	if p.failures == failuresTold {
		w.LogOf(p.job).Warn("an operation cannot be polled; weir goes on trying", "failures", p.failures, "reason", why, "wait", rest)
	}
	w.again(p, rest)
}

// failuresTold is the number of failed polls in a row after which an operation is logged.
const failuresTold = 10

// done ends a job with the result of its operation.
func (w *Poller) done(ctx context.Context, j *lane.Job, terms *lane.Terms, a answer) {
	if w.take(j) {
		r := terms.API.Operation.ResultOf(a.r)
		w.settler.Operations.End(ctx, j, r, httpcall.Outcome{Verdict: httpcall.Delivered, Billed: deadletter.BilledYes})
	}
}

// giveUp ends a job whose operation has not ended in time.
func (w *Poller) giveUp(ctx context.Context, p *poll, r httpcall.Response, last string) {
	op := p.job.Operation
	detail := fmt.Sprintf("its operation has not ended within %s; the last poll: %s", bucket.MicrosOf(op.Started).Until(op.Until).Round(time.Second), last)
	w.end(ctx, p.job, r, deadletter.Unknown, detail)
}

// end ends a job by a letter. The job's call was accepted, so it counts as billed.
func (w *Poller) end(ctx context.Context, j *lane.Job, r httpcall.Response, reason deadletter.Reason, detail string) {
	if w.take(j) {
		w.settler.Operations.End(ctx, j, r, httpcall.Outcome{Verdict: httpcall.Dead, Reason: reason, Detail: detail, Billed: deadletter.BilledYes})
	}
}

// take makes a polled job settling, so that the caller can end it. It returns false if the job has ended already, or
// belongs to another owner by now.
func (w *Poller) take(j *lane.Job) bool {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return !j.Part.Closing && !j.Part.Lost.Load() && w.Sched.EndPolled(j.Job)
}

// State returns how the polls stand. It looks at every operation.
func (w *Poller) State() (s desk.Polls) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	s.Silent = w.agenda.silence(w.Now())
	for _, p := range w.agenda.waiting {
		if at := p.job.Operation.Started; p.job.IsPolled() && (s.Oldest.IsZero() || at.Before(s.Oldest)) {
			s.Oldest = at
		}
	}
	return s
}
