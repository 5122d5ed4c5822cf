package dispatcher

import (
	"context"
	"sync/atomic"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/lane"
	"weir/dispatcher/settle"
	"weir/dispatcher/takeover"
	"weir/ingest"
)

// caller makes the calls of a lane's jobs: it makes a job ready, waits for its slot, makes the call, and hands the
// outcome to the settler.
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

// work brings one job through its call, in the job's own goroutine. It begins when the schedule wants the job made
// ready. It returns when the job's outcome or end is stored, the job rests, its partition is lost, or the worker stops.
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

// beginLocked hands a job that the schedule wants made ready to a goroutine that waits for one, or else to a new one.
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

// orderLocked sends the schedule's decision about a ready job to the job's goroutine. It does not block: the channel has
// room for one order. The next one comes only after an order to call that led to no call. Any other order is the last.
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

// read parses a job's message, and computes what its call costs. If that panics, the job becomes a letter invalid,
// because the next try would panic too.
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
