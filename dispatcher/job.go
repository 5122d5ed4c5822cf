package dispatcher

import (
	"context"
	"time"

	"weir/bucket"
	"weir/bucket/fault"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/recorder"
	"weir/dispatcher/schedule"
	"weir/dispatcher/trace"
	"weir/ingest"
)

// work brings one job through its call, in a goroutine that is the job's: from when the schedule wants the job made ready until its
// outcome is stored, or until it rests.
func (w *apiWorker) work(ctx context.Context, j *job, orders <-chan order) {
	if !w.prepare(ctx, j) {
		return
	}
	for w.awaitSlot(ctx, j, orders) {
		if r, made := w.call(ctx, j); made {
			w.settle(ctx, j, r)
			return
		}
	}
}

// order is what the schedule decided about a job that is ready.
type order int8

const (
	toCall     order = iota // its slot has come
	toRest                  // its slot is far, or it was made ready in vain: its intent and its connection are let go of already
	toExpire                // its deadline has passed
	toCancel                // by an operator's word
	toRefuse                // its cost can never pass the limits
	toOverdraw              // the budget is spent, and says to bury
)

// mostIdle is how many goroutines wait for another job when theirs has ended, at most: a new goroutine has to grow its stack first, which took
// 2.5 % of weir's CPU.
const mostIdle = 64

// begun is a job that has a goroutine.
type begun struct {
	j      *job
	orders <-chan order
}

// beginLocked gives a job that the schedule wants made ready a goroutine: one that waits for another job, or a new one.
func (w *apiWorker) beginLocked(ctx context.Context, j *job) {
	orders := make(chan order, 1)
	j.orders = orders
	b := begun{j, orders}
	select {
	case w.begun <- b:
	default:
		w.running.Go(func() { w.workAll(ctx, b) })
	}
}

// workAll works a job, and then others for as long as goroutines may wait for them.
func (w *apiWorker) workAll(ctx context.Context, b begun) {
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

// orderLocked tells the goroutine of a ready job what the schedule decided. It does not block: there is one order each time that the
// goroutine waits, and none after the one that ends its waiting.
func (w *apiWorker) orderLocked(j *job, o order) {
	orders := j.orders
	if o != toCall {
		j.orders = nil
	}
	if o == toRest {
		j.terms.call.Conns.Release()
	}
	orders <- o
}

// awaitSlot blocks until the job may be called, and reports whether it may. Otherwise the job rests, or has ended, or the api's
// worker stops.
func (w *apiWorker) awaitSlot(ctx context.Context, j *job, orders <-chan order) bool {
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
		w.expire(ctx, j)
	case toCancel:
		w.buryCancelled(ctx, j)
	case toRefuse:
		w.bury(ctx, j, deadletter.Invalid, j.impassable(), nil)
	case toOverdraw:
		w.bury(ctx, j, deadletter.OverBudget, j.overdrawn(), nil)
	default:
		panic("dispatcher: an order that nobody knows") // orderLocked was given one
	}
	return false
}

// endLocked has a job end as the schedule decided: its goroutine does it, or a new one where the job has none.
func (w *apiWorker) endLocked(j *job, o order, end func()) {
	if j.orders != nil {
		w.orderLocked(j, o)
		return
	}
	w.running.Go(end)
}

// sent tells the schedule that a call has left, or has ended without leaving.
func (w *apiWorker) sent(j *job) {
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

// call makes a granted call, and reports whether it was made: without the right to its partition the job's slot goes back.
func (w *apiWorker) call(ctx context.Context, j *job) (r httpcall.Response, made bool) {
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
	w.trace(j)
	late := j.At.Until(w.now())
	observe(w.metrics.late, late.Seconds(), j)
	if first {
		observe(w.metrics.wait, since.Until(w.now()).Seconds(), j)
	}
	fault.Pass(fault.CallNext)
	flight := j.takeOff(tat+w.d.opts.Ahead(), late)
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
		w.log.Warn("the api has sent what no call had asked for, behind its answer to one: an answer to a call just before may be that of another; " +
			"each call has a connection of its own for an hour")
	}
	observe(w.metrics.duration, r.Ended.Sub(r.Started).Seconds(), j)
	w.grants.settle(ctx, []bucket.Use{use})
	w.update(func(s *schedule.Schedule) { s.LearnCall(r.Ended.Sub(r.Started)); s.Ended(j.Job) })
	return r, true
}

// unstart takes back a call that this process had no right to make when it came to it.
func (w *apiWorker) unstart(ctx context.Context, j *job) {
	w.mu.Lock()
	use := w.s.Unstart(j.Job)
	w.mu.Unlock()
	w.grants.settle(ctx, []bucket.Use{use})
	w.wakeUp()
}

// job is what a worker has of a job that is near its call, or past one. The worker's lock guards the embedded schedule.Job, and each other
// field that is read under the lock; the rest belongs to the goroutine that brings the job on its way: there is one at a time.
type job struct {
	*schedule.Job
	part     *partition
	terms    *terms       // it was last made ready by
	message  *ingest.Job  // while near its call
	space    *queue.Space // that it takes in memory then
	orders   chan<- order // to its goroutine, nil while it has none
	id       string       // once it was near its call and is not any more
	accepted bucket.Micros
	staged   bucket.Micros // when it began to be made ready
	missing  int           // times its message was not found

	taken     []int64  // the costs of its last call, as far as its answer told them
	unsettled []string // limits of which that answer was to tell, and did not
	attempts  int      // its calls that count
	status    int      // that the api answered last, 0 if it never did
	doubt     doubt    // what may have come of its calls so far
	crashes   int      // calls over which weir crashed
	// answeredAt is where the record stands in the ledger of the last call that the api answered, 0 for none.
	answeredAt uint64

	lastCall *deadletter.LastCall // what is known of the last call that was sent, for a letter; nil: nothing
	lost     *foundIntent         // of a call nobody knows the outcome of, until that is settled
	flown    *recorder.Found      // what its process noted of that call
	entry    recorder.Entry       // of its call in the flight recorder
	adopted  recorder.Entry       // of its call as a process before intended it, which had not begun
	intents  []*intentMark
	intended int // the call number its newest intent covers, 0 for none
	// intendedBy are the terms that intent tells of.
	intendedBy *terms
	// intendedAt is when that intent was stored, by the server; zero when all that may have come of it has been looked up.
	intendedAt time.Time
	markSeq    uint64   // of its retry mark, 0 for none
	ends       []uint64 // of the marks that say that it ends

	traced  *trace.Job    // its spans, once one was to be written since it was loaded; nil: none are
	settled time.Time     // since when what became of its last call is being stored
	rested  bucket.Micros // since when it waits to be called again; 0: it does not, or nobody knows

	holdup  schedule.Holdup // what kept it from its last call, for the ledger
	why     string          // an operator cancelled it
	ended   chan struct{}   // closed when the job has ended, if somebody waits for that
	outcome string          // then
}

// jobLocked is the worker's own of a job.
func jobLocked(j *schedule.Job) *job {
	if j.Of == nil {
		j.Of = &job{Job: j, part: partitionOf(j.Queue)}
	}
	return j.Of.(*job)
}
