package dispatcher

import (
	"context"
	"time"

	"weir/bucket"
	"weir/bucket/fault"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// attempt is one call of a job in its slot.
type attempt struct {
	*caller
	j        *lane.Job
	latest   bucket.Micros // after it the call may not be sent
	flight   *lane.Flight
	unseen   bool          // Unseen of the job before the call
	at       bucket.Micros // when it departed, by the lane's clock
	measured time.Time     // the same by this machine's clock
	late     time.Duration // how long after its slot
	waited   time.Duration // how long the job had waited for it
}

// call makes a granted call, and reports whether it was made. If this replica lost the right to the partition, or the
// slot was missed, call gives the job's slot back instead.
func (w *caller) call(ctx context.Context, j *lane.Job) (r httpcall.Response, made bool) {
	a := attempt{caller: w, j: j}
	w.Mu.Lock()
	a.latest = w.Sched.At(w.Now()).Latest(j.Job)
	w.Mu.Unlock()
	if !a.mayWrite() || !a.isAllowed() {
		w.unstart(j)
		return r, false
	}
	a.depart()
	if r = w.send(ctx, j, w.outgoing(j), a.hooks()); r.Barred && !r.Sent {
		a.takeBack(ctx)
		return r, false
	}
	lane.Observe(w.Metrics.Late, (a.late + r.Started.Sub(a.measured)).Seconds(), j)
	if j.Calls == 1 {
		w.observeWait(j, a.waited)
	}
	use := a.charge(r)
	if j.Leads != nil {
		w.divide(j, r, a.at)
	} else {
		a.flight.Land(j, r)
		j.Answered(r)
	}
	w.sent(j)
	a.release()
	lane.Observe(w.Metrics.Duration, r.Ended.Sub(r.Started).Seconds(), j)
	a.end(ctx, r, use)
	return r, true
}

// mayWrite reports whether the call may be sent now: this replica has the right to the partition, and the slot has not
// passed.
func (a *attempt) mayWrite() bool { return a.j.Part.MayCall() && a.Now() <= a.latest }

// isAllowed reports whether the job's terms still allow the call. They did when the job was made ready, and may have
// changed since. If they do not, the job expires, which parks it.
func (a *attempt) isAllowed() bool {
	j := a.j
	if j.Allows(j.Terms.API) && (j.Leads == nil || j.Leads.Allowed()) {
		return true
	}
	a.Update(func(*schedule.Schedule) { j.Forgotten, j.Deadline = true, a.Now() })
	return false
}

// depart counts the call, which is about to be sent.
func (a *attempt) depart() {
	j := a.j
	a.Mu.Lock()
	since := j.Since()
	a.noteHoldupLocked(j)
	a.unseen = j.Unseen
	j.Calls++
	j.Unseen = false
	if j.Leads != nil {
		j.Leads.DepartLocked(j)
	}
	tat := max(j.Grant.TAT, a.Sched.At(a.Now()).Floor(j.Queue))
	a.Mu.Unlock()
	a.settler.Spans.Of(j)
	a.at, a.measured = a.Now(), time.Now()
	a.late, a.waited = j.At.Until(a.at), since.Until(a.at)
	fault.Pass(fault.CallNext)
	a.flight = lane.TakeOff(j, tat+a.Env.Ahead(), a.late)
}

// hooks returns what happens while the call is sent.
func (a *attempt) hooks() httpcall.Hooks {
	h := httpcall.Hooks{
		MayWrite: a.mayWrite, Begins: a.flight.Begins,
		Left: func() { a.flight.Left(); fault.Pass(fault.CallSent); a.sent(a.j) },
	}
	if a.j.Leads != nil {
		a.j.Leads.Fly(a.j, a.flight, &h)
	}
	return h
}

// takeBack undoes depart for a call that lost its slot before anything was sent, and its connection with it.
func (a *attempt) takeBack(ctx context.Context) {
	j := a.j
	a.Mu.Lock()
	j.Calls--
	j.Unseen = a.unseen
	if j.Leads != nil {
		j.Leads.ReturnLocked(j)
	}
	a.Mu.Unlock()
	if j.Part.MayCall() {
		_ = j.Terms.Call.Conns.Replace(ctx) // without a connection the next slot's call dials
	}
	a.unstart(j)
}

// charge notes in the job's bill what the call has used, and returns it for the store of slots.
func (a *attempt) charge(r httpcall.Response) bucket.Use {
	j := a.j
	took := a.settleUnits(j, r)
	j.Bill.Usage, j.Bill.Unsettled, j.Bill.Paid = j.Terms.API.UsageOf(r), took.silent, took.price
	if j.Bill.Taken = j.Costs; took.actual != nil {
		j.Bill.Taken = took.actual
	}
	if j.Bill.Over(j.Costs) != nil {
		a.Env.Metrics.Over.WithLabelValues(a.Name).Inc()
	}
	return bucket.Use{Key: j.Queue.Key, Grant: j.Grant, Costs: j.Costs, Actual: took.actual, Left: a.leftOf(j, r)}
}

// release gives the call's connection back.
func (a *attempt) release() {
	conns := a.j.Terms.Call.Conns
	conns.Release()
	if conns.Unasked() {
		a.Log.Warn("the api sent an answer that no call had asked for, so the answer to a call just before may belong to another call; " +
			"each call has a connection of its own for an hour")
	}
}

// end reports the end of the call to the store of slots and to the schedule. If the call began an operation that holds
// its slot, the store hears of the end when the operation's own slot is held.
func (a *attempt) end(ctx context.Context, r httpcall.Response, use bucket.Use) {
	j := a.j
	o := j.Terms.API.Operation
	holds := o != nil && o.HoldSlot && j.Judge(r).Verdict == httpcall.Submitted
	if holds {
		j.Granted = &use
	} else {
		a.grants.settle(ctx, []bucket.Use{use})
	}
	a.Update(func(s *schedule.Schedule) {
		s.Pipe.LearnCall(r.Ended.Sub(r.Started))
		if holds {
			s.Pipe.KeepSlot(j.Job) // before the call ends, so that no other call takes the slot while the operation is stored
		}
		s.Ended(j.Job, use.Actual, a.Now())
	})
}

// sent reports to the schedule that a call's first bytes have left, or that the call ended without sending any. Until
// then the key's next call does not start: it must not overtake a call that may still lose its slot.
func (w *caller) sent(j *lane.Job) {
	w.Mu.Lock()
	more := w.Sched.Sent(j.Job, w.Now())
	w.Mu.Unlock()
	if more {
		w.WakeUp()
	}
}

// observeWait measures how long a job has waited for its first call.
func (w *caller) observeWait(j *lane.Job, waited time.Duration) {
	lane.Observe(w.Metrics.Wait, waited.Seconds(), j)
	if j.Priority != ingest.Normal {
		lane.Observe(w.Env.Metrics.PriorityWait.WithLabelValues(w.Name, j.Priority.String()), waited.Seconds(), j)
	}
}

// unstart takes back a call that this process may not make any more, or could not make in its slot.
func (w *caller) unstart(j *lane.Job) {
	w.Mu.Lock()
	w.Sched.Unstart(j.Job)
	w.Mu.Unlock()
	w.WakeUp()
}

// send makes a job's call with the message m. If the call panics, it counts as sent, because it may have been.
func (w *caller) send(ctx context.Context, j *lane.Job, m *ingest.Job, h httpcall.Hooks) httpcall.Response {
	r := httpcall.Response{Started: time.Now()}
	if c := lane.Contained(func() { r = j.Terms.Call.Call(ctx, m, h) }); c != nil {
		w.TellCrash(j, c)
		j.Crashes++
		r = httpcall.Response{Sent: true, Err: c, Started: r.Started, Ended: time.Now()}
	}
	return r
}

// outgoing returns the job's message as it is sent to the api. If the trace is recorded, the message names the call as
// the parent of the api's spans.
func (w *caller) outgoing(j *lane.Job) *ingest.Job {
	t, m := w.settler.Spans.Of(j), j.Message
	if j.Leads != nil {
		m = j.Leads.Message
	}
	if !t.Recorded() {
		return m
	}
	return m.Outgoing(j.Terms.API.Rule, t.Outgoing(j.Calls))
}
