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
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// caller makes the calls of a lane's jobs: it makes a job ready, waits for its slot, sends it, and hands its outcome to
// the settler.
type caller struct {
	*lane
	settler     *settler
	memory      *memory
	pace        *pace
	grants      *grantEnds
	settlements settlements
	begun       chan begun   // to goroutines that wait for another job
	idle        atomic.Int32 // how many goroutines wait for another job
}

func newCaller(l *lane, s *settler, p *pace, grants *grantEnds) *caller {
	return &caller{lane: l, settler: s, memory: s.memory, pace: p, grants: grants, begun: make(chan begun)}
}

// work brings one job through its call, in the job's own goroutine. It starts when the schedule wants the job made
// ready. It returns when the job's outcome or end is stored, the job rests, or the worker stops.
func (w *caller) work(ctx context.Context, j *job, orders <-chan order) {
	if !w.prepare(ctx, j) {
		return
	}
	for w.awaitSlot(ctx, j, orders) {
		if r, made := w.call(ctx, j); made {
			w.settler.settle(ctx, j, r)
			return
		}
	}
}

// mostIdle bounds the goroutines that wait for another job after theirs has ended. They are reused because a new
// goroutine must grow its stack first, which took 2.5 % of weir's CPU.
const mostIdle = 64

// begun is a job that is being handed to a goroutine.
type begun struct {
	j      *job
	orders <-chan order
}

// beginLocked gives a goroutine to a job that the schedule wants made ready: an idle one, or a new one.
func (w *caller) beginLocked(ctx context.Context, j *job) {
	orders := make(chan order, 1)
	j.orders = orders
	b := begun{j, orders}
	select {
	case w.begun <- b:
	default:
		w.running.Go(func() { w.workAll(ctx, b) })
	}
}

// workAll works a job, and then further jobs until mostIdle other goroutines wait for one, or the worker stops.
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
		case <-w.stopped:
			return
		}
	}
}

// orderLocked sends the schedule's decision to the goroutine of a ready job. It does not block: each wait of the
// goroutine gets one order, and no order follows one that ends the waiting.
func (w *caller) orderLocked(j *job, o order) {
	orders := j.orders
	if o != toCall {
		j.orders = nil
	}
	if o == toRest {
		j.terms.call.Conns.Release()
	}
	orders <- o
}

// awaitSlot blocks until the schedule has decided about the job, and reports whether the job may be called. If not, the
// job rests or has ended, or the worker stops.
func (w *caller) awaitSlot(ctx context.Context, j *job, orders <-chan order) bool {
	var o order
	select {
	case o = <-orders:
	case <-w.stopped:
		select {
		case o = <-orders: // it came before the stop
		default:
			return false
		}
	}
	if o != toCall && o != toRest {
		j.terms.call.Conns.Release()
	}
	switch o {
	case toCall:
		return true
	case toRest:
	case toExpire:
		w.settler.expire(ctx, j)
	case toCancel:
		w.settler.buryCancelled(ctx, j)
	case toRefuse:
		w.settler.bury(ctx, j, deadletter.Invalid, j.impassable(), nil)
	case toOverdraw:
		w.settler.bury(ctx, j, deadletter.OverBudget, j.overdrawn(), nil)
	default:
		panic("dispatcher: unknown order") // orderLocked was given one
	}
	return false
}

// endLocked ends a job as the schedule decided, in the job's goroutine if it has one, else in a new one that runs end.
func (w *caller) endLocked(j *job, o order, end func()) {
	if j.orders != nil {
		w.orderLocked(j, o)
		return
	}
	w.running.Go(end)
}

// sent reports to the schedule that a call was sent, or ended without being sent.
func (w *caller) sent(j *job) {
	w.mu.Lock()
	waited := j.Unsent
	if waited {
		w.s.Sent(j.Job, w.now())
	}
	w.mu.Unlock()
	if waited {
		w.wakeUp()
	}
}

// call makes a granted call, and reports whether it was made. If the right to the partition is missing, call gives the
// job's slot back instead.
func (w *caller) call(ctx context.Context, j *job) (r httpcall.Response, made bool) {
	if !j.part.mayCall() {
		w.unstart(ctx, j)
		return r, false
	}
	w.mu.Lock()
	since := j.since()
	w.noteHoldupLocked(j)
	j.Calls++
	unseen := j.Unseen
	j.Unseen = false
	first := j.Calls == 1
	tat := max(j.Grant.TAT, w.s.Floor(j.Queue))
	w.mu.Unlock()
	w.settler.trace(j)
	late := j.At.Until(w.now())
	observe(w.metrics.late, late.Seconds(), j)
	if first {
		observe(w.metrics.wait, since.Until(w.now()).Seconds(), j)
	}
	fault.Pass(fault.CallNext)
	flight := j.takeOff(tat+w.env.ahead(), late)
	r = w.send(ctx, j, w.outgoing(j), httpcall.Hooks{
		Wrote: func() { fault.Pass(fault.CallSent); w.sent(j) }, MayWrite: j.part.mayCall, Begins: flight.begins, Left: flight.left,
	})
	if r.Barred && !r.Sent {
		w.mu.Lock()
		j.Calls--
		j.Unseen = unseen
		w.mu.Unlock()
		w.unstart(ctx, j)
		return r, false
	}
	use := bucket.Use{Key: j.Queue.Key, Grant: j.Grant, Costs: j.Costs}
	use.Actual, j.unsettled = w.actual(j, r)
	if j.taken = j.Costs; use.Actual != nil {
		j.taken = use.Actual
	}
	j.land(flight, r)
	w.sent(j)
	j.answered(r)
	j.terms.call.Conns.Release()
	if j.terms.call.Conns.Unasked() {
		w.log.Warn("the api sent an answer that no call had asked for, so the answer to a call just before may belong to another call; " +
			"each call has a connection of its own for an hour")
	}
	observe(w.metrics.duration, r.Ended.Sub(r.Started).Seconds(), j)
	w.grants.settle(ctx, []bucket.Use{use})
	w.update(func(s *schedule.Schedule) {
		s.Pipe.LearnCall(r.Ended.Sub(r.Started))
		s.Ended(j.Job, use.Actual, w.now())
	})
	return r, true
}

// unstart takes back a call that this process no longer had the right to make in its slot.
func (w *caller) unstart(ctx context.Context, j *job) {
	w.mu.Lock()
	use := w.s.Unstart(j.Job)
	w.mu.Unlock()
	w.grants.settle(ctx, []bucket.Use{use})
	w.wakeUp()
}

// read parses a job's message, and computes what its call costs. If parsing panics, the job is parked at once: it would
// panic each time, and the job was not called.
func (w *caller) read(j *job, e queue.Entry) (refusal *ingest.Refusal, err error) {
	var job *ingest.Job
	var costs []int64
	c := contained(func() {
		job, refusal = ingest.Restore(ingest.Message{Key: j.Queue.Key, Header: e.Header, Body: e.Data}, j.terms.api.Rule, e.Time)
		if refusal == nil {
			costs, err = j.terms.costs(job)
		}
	})
	if c != nil {
		w.tellCrash(j, c)
		job = &ingest.Job{API: w.name, Key: j.Queue.Key, ID: e.Header.Get(ingest.HeaderJobID), Header: e.Header, Body: e.Data, Trace: ingest.TraceOf(e.Header)}
		err = c
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	j.message, j.accepted, j.Costs = job, bucket.MicrosOf(e.Time), costs
	j.doubtRestoredLocked()
	if !job.Deadline.IsZero() {
		j.Deadline = bucket.MicrosOf(job.Deadline)
	}
	// The job was redriven: its calls before that carried this key.
	if keyed := job.Header.Get(deadletter.HeaderKeyed); keyed != "" && job.Redrives > 0 {
		j.doubt.recall(deadletter.Billed(job.Header.Get(deadletter.HeaderBilled)), keyed)
	}
	return refusal, err
}

// send makes a job's call with the message m. If the call panics, it counts as sent, because it may have been.
func (w *caller) send(ctx context.Context, j *job, m *ingest.Job, h httpcall.Hooks) httpcall.Response {
	r := httpcall.Response{Started: time.Now()}
	if c := contained(func() { r = j.terms.call.Call(ctx, m, h) }); c != nil {
		w.tellCrash(j, c)
		j.crashes++
		r = httpcall.Response{Sent: true, Err: c, Started: r.Started, Ended: time.Now()}
	}
	return r
}

// outgoing returns the job as it is sent to its api. If the trace is recorded, the call is the parent of the api's
// spans.
func (w *caller) outgoing(j *job) *ingest.Job {
	t := w.settler.trace(j)
	if !t.Recorded() {
		return j.message
	}
	return j.message.Outgoing(j.terms.api.Rule, t.Outgoing(j.Calls))
}
