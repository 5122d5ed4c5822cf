package dispatcher

import (
	"context"
	"sync/atomic"
	"time"

	"weir/bucket"
	"weir/bucket/fault"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
	"weir/dispatcher/settle"
	"weir/dispatcher/takeover"
	"weir/ingest"
)

// caller makes the calls of a lane's jobs: it makes a job ready, waits for its slot, sends it, and hands its outcome to
// the settler.
type caller struct {
	*lane.Lane
	settler     *settle.Settler
	memory      *settle.Memory
	pace        *takeover.Pace
	grants      *grantEnds
	settlements settlements
	begun       chan begun   // to goroutines that wait for another job
	idle        atomic.Int32 // how many goroutines wait for another job
}

func newCaller(l *lane.Lane, s *settle.Settler, p *takeover.Pace, grants *grantEnds) *caller {
	return &caller{Lane: l, settler: s, memory: s.Memory, pace: p, grants: grants, begun: make(chan begun)}
}

// work brings one job through its call, in the job's own goroutine. It starts when the schedule wants the job made
// ready. It returns when the job's outcome or end is stored, the job rests, or the worker stops.
func (w *caller) work(ctx context.Context, j *lane.Job, orders <-chan lane.Order) {
	if !w.prepare(ctx, j) {
		return
	}
	for w.awaitSlot(ctx, j, orders) {
		if r, made := w.call(ctx, j); made {
			if j.Leads != nil {
				w.settler.SettlePack(ctx, j, r)
				return
			}
			w.settler.Settle(ctx, j, r)
			return
		}
	}
}

// mostIdle bounds the goroutines that wait for another job after theirs has ended. They are reused because a new
// goroutine must first grow its stack, which took 2.5 % of weir's CPU.
const mostIdle = 64

// begun is a job that is being handed to a goroutine.
type begun struct {
	j      *lane.Job
	orders <-chan lane.Order
}

// beginLocked gives a goroutine to a job that the schedule wants made ready: an idle one, or a new one.
func (w *caller) beginLocked(ctx context.Context, j *lane.Job) {
	orders := make(chan lane.Order, 1)
	j.Orders = orders
	b := begun{j, orders}
	select {
	case w.begun <- b:
	default:
		w.Running.Go(func() { w.workAll(ctx, b) })
	}
}

// workAll works a job, and then waits for further ones. It returns if mostIdle other goroutines wait already, or when
// the worker stops.
func (w *caller) workAll(ctx context.Context, b begun) {
	for {
		w.work(ctx, b.j, b.orders)
		if w.idle.Add(1) > mostIdle {
			w.idle.Add(-1)
			return
		}
		b = begun{} // a goroutine that waits must not keep an ended job in memory
		select {
		case b = <-w.begun:
			w.idle.Add(-1)
		case <-w.Stopped:
			return
		}
	}
}

// orderLocked sends the schedule's decision about a ready job to the job's goroutine. It does not block: the goroutine
// gets one order each time it waits, and no further order after one that ends its waiting.
func (w *caller) orderLocked(j *lane.Job, o lane.Order) {
	orders := j.Orders
	if o != lane.ToCall {
		j.Orders = nil
		j.DisbandLocked()
	}
	if o == lane.ToRest {
		j.Terms.Call.Conns.Release()
	}
	orders <- o
}

// awaitSlot blocks until the schedule has decided about the job, and reports whether the job may be called. If not, the
// job rests or has ended, or the worker stops.
func (w *caller) awaitSlot(ctx context.Context, j *lane.Job, orders <-chan lane.Order) bool {
	var o lane.Order
	select {
	case o = <-orders:
	case <-w.Stopped:
		select {
		case o = <-orders: // it came before the worker stopped
		default:
			return false
		}
	}
	if o != lane.ToCall && o != lane.ToRest {
		j.Terms.Call.Conns.Release()
	}
	switch o {
	case lane.ToCall:
		return true
	case lane.ToRest:
	case lane.ToExpire:
		w.settler.Expire(ctx, j)
	case lane.ToCancel:
		w.settler.BuryCancelled(ctx, j)
	case lane.ToRefuse:
		w.settler.Bury(ctx, j, deadletter.Invalid, "its cost can never pass limit "+j.Refused, nil)
	case lane.ToOverdraw:
		w.settler.Bury(ctx, j, deadletter.OverBudget, "the budget "+j.Refused+" is spent", nil)
	default:
		panic("dispatcher: unknown order") // orderLocked was given an unknown one
	}
	return false
}

// endLocked ends a job as the schedule decided. The job's goroutine does so, if it has one. Otherwise a new goroutine
// runs end.
func (w *caller) endLocked(j *lane.Job, o lane.Order, end func()) {
	if j.Orders != nil {
		w.orderLocked(j, o)
		return
	}
	w.Running.Go(end)
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

// call makes a granted call, and reports whether it was made. If this replica lost the right to the partition, or the
// slot was missed, call gives the job's slot back instead.
func (w *caller) call(ctx context.Context, j *lane.Job) (r httpcall.Response, made bool) {
	w.Mu.Lock()
	latest := w.Sched.At(w.Now()).Latest(j.Job)
	w.Mu.Unlock()
	inTime := func() bool { return w.Now() <= latest }
	if !j.Part.MayCall() || !inTime() {
		w.unstart(j)
		return r, false
	}
	// The terms allowed the call when the job was made ready, and may have changed since.
	if !j.Allows(j.Terms.API) || j.Leads != nil && !j.Leads.Allowed() {
		w.Update(func(*schedule.Schedule) { j.Forgotten, j.Deadline = true, w.Now() })
		w.unstart(j) // it expires, which parks it
		return r, false
	}
	w.Mu.Lock()
	since := j.Since()
	w.noteHoldupLocked(j)
	unseen := j.Unseen
	j.Calls++
	j.Unseen = false
	if j.Leads != nil {
		j.Leads.DepartLocked(j)
	}
	tat := max(j.Grant.TAT, w.Sched.At(w.Now()).Floor(j.Queue))
	w.Mu.Unlock()
	w.settler.Spans.Of(j)
	late, measured := j.At.Until(w.Now()), time.Now()
	waited := since.Until(w.Now())
	fault.Pass(fault.CallNext)
	flight := lane.TakeOff(j, tat+w.Env.Ahead(), late)
	hooks := httpcall.Hooks{
		MayWrite: func() bool { return j.Part.MayCall() && inTime() }, Begins: flight.Begins,
		Left: func() { flight.Left(); fault.Pass(fault.CallSent); w.sent(j) },
	}
	if j.Leads != nil {
		j.Leads.Fly(j, flight, &hooks)
	}
	r = w.send(ctx, j, w.outgoing(j), hooks)
	if r.Barred && !r.Sent {
		w.Mu.Lock()
		j.Calls--
		j.Unseen = unseen
		if j.Leads != nil {
			j.Leads.ReturnLocked(j)
		}
		w.Mu.Unlock()
		if j.Part.MayCall() { // the call lost its slot, and its connection with it
			_ = j.Terms.Call.Conns.Replace(ctx) // without a connection the next slot's call dials
		}
		w.unstart(j)
		return r, false
	}
	lane.Observe(w.Metrics.Late, (late + r.Started.Sub(measured)).Seconds(), j)
	if j.Calls == 1 {
		w.observeWait(j, waited)
	}
	use := bucket.Use{Key: j.Queue.Key, Grant: j.Grant, Costs: j.Costs}
	took := w.settleUnits(j, r)
	j.Bill.Usage = j.Terms.API.UsageOf(r)
	use.Actual, j.Bill.Unsettled, j.Bill.Paid = took.actual, took.silent, took.price
	use.Left = w.leftOf(j, r)
	if j.Bill.Taken = j.Costs; use.Actual != nil {
		j.Bill.Taken = use.Actual
	}
	if j.Bill.Over(j.Costs) != nil {
		w.Env.Metrics.Over.WithLabelValues(w.Name).Inc()
	}
	if j.Leads != nil {
		w.divide(j, r, took.price, since.Add(waited))
	} else {
		flight.Land(j, r)
		j.Answered(r)
	}
	w.sent(j)
	j.Terms.Call.Conns.Release()
	if j.Terms.Call.Conns.Unasked() {
		w.Log.Warn("the api sent an answer that no call had asked for, so the answer to a call just before may belong to another call; " +
			"each call has a connection of its own for an hour")
	}
	lane.Observe(w.Metrics.Duration, r.Ended.Sub(r.Started).Seconds(), j)
	o := j.Terms.API.Operation
	holds := o != nil && o.HoldSlot && j.Judge(r).Verdict == httpcall.Submitted
	if holds {
		j.Granted = &use // it ends when the operation's own slot is held
	} else {
		w.grants.settle(ctx, []bucket.Use{use})
	}
	w.Update(func(s *schedule.Schedule) {
		s.Pipe.LearnCall(r.Ended.Sub(r.Started))
		if holds {
			s.Pipe.KeepSlot(j.Job) // before the call ends, so that no other call takes the slot while the operation is stored
		}
		s.Ended(j.Job, use.Actual, w.Now())
	})
	return r, true
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

// read parses a job's message, and computes what its call costs. If parsing panics, the job is parked at once: it would
// panic each time, and the job was not called.
func (w *caller) read(j *lane.Job, e queue.Entry) (refusal *ingest.Refusal, err error) {
	var reserve lane.Toll
	var price int64
	job, refusal, c := w.Restore(j, e, j.Terms.API.Rule)
	if c == nil && refusal == nil {
		if c = lane.Contained(func() { reserve, price, err = w.settlements.toll(j.Terms, job) }); c != nil {
			w.TellCrash(j, c)
		}
	}
	if c != nil {
		err = c
	}
	w.Mu.Lock()
	defer w.Mu.Unlock()
	j.Message, j.Accepted, j.Costs = job, bucket.MicrosOf(e.Time), reserve.Costs
	j.Bill.Reserved, j.Bill.Estimates = price, reserve.Estimates
	j.RecallLocked()
	if !job.Deadline.IsZero() {
		j.Deadline = w.Sched.Queues.Own(bucket.MicrosOf(job.Deadline))
	}
	return refusal, err
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
