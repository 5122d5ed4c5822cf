package settle

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"time"

	"weir/bucket"
	"weir/bucket/fault"
	"weir/bucket/queue"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
)

// An api may accept a call and go on working on it: it has begun an operation. weir then polls the operation, and never
// calls the job again. weir stores the following. Each write starts only when the one before it is durable:
//
//	the call was accepted      the ledger's record, with the operation's address; the mark of the operation; the call's
//	                           intent is deleted
//	the operation has ended    an intent, which says that its end may be stored from now on; then as for a call: result,
//	                           reply, record and deletion, or record, letter and deletion
//
// The record and the mark hold the same data, so either is enough to go on polling. The intent of the end has the
// number of the call. It tells a later owner since when the end may have been stored: if that time is earlier than the
// part of the ledger that the owner has read, it must look the end up. The stream refuses the intent if another owner
// has the partition. Before a letter is stored, the result is barred, as for a lost call: an earlier owner may have
// seen the operation succeed.

// Operations keeps the jobs that an api has accepted, and ends them when their operations have ended.
type Operations struct {
	*Settler
	begin func(j *lane.Job)                             // starts to poll a job; called under the lock
	slots func(ctx context.Context, uses []bucket.Use)  // reports ends of grants to the store
	over  func(j *lane.Job, r httpcall.Response) Beyond // returns what an operation took beyond what its call was charged
}

// Beyond is what an operation took, by its final answer, in addition to what its call was charged.
type Beyond struct {
	Price int64
	Units []int64 // of each shared limit; nil: only money is known
	// Estimates are the job's own estimates of these units. It is nil if Units is nil, or if the final answer does not
	// report all of them.
	Estimates []int64
}

// Use sets the functions of w. begin starts to poll a job, slots reports ends of grants, and over says what an
// operation took in addition to what its call was charged. begin is called under the lock.
func (w *Operations) Use(
	begin func(*lane.Job), slots func(context.Context, []bucket.Use), over func(*lane.Job, httpcall.Response) Beyond,
) {
	w.begin, w.slots, w.over = begin, slots, over
}

// longestPolled is how long an operation is polled if its api's configuration has no operations any more.
const longestPolled = 24 * time.Hour

// submit stores that the api has accepted a call, and lets the job be polled.
func (w *Operations) submit(ctx context.Context, j *lane.Job, r httpcall.Response, out httpcall.Outcome) {
	fault.Pass(fault.CallAnswered)
	op := *out.Operation
	wait := longestPolled
	if o := j.Terms.API.Operation; o != nil {
		wait = o.For
	}
	op.Until = w.WallTime(w.Now()).Add(wait - max(0, time.Since(r.Ended)))
	op.Price, op.Costs, op.Limits = j.Price(), j.Bill.Charged(j.Costs), j.Terms.Limits
	j.Operation = &op
	c := Record(j, r, out)
	c.Operation = &op
	if w.KeepRecord(ctx, j, c) {
		w.Keep(ctx, j, c)
	}
}

// Keep stores the mark of a job whose last call was accepted, and then lets the job be polled. c is the call's record.
// Keep deletes the call's intent and the job's former mark.
func (w *Operations) Keep(ctx context.Context, j *lane.Job, c *ledger.Record) {
	seq, ok := w.keepMark(ctx, "mark of an operation", j, MarkOf(j))
	if !ok {
		return
	}
	fault.Pass(fault.RetryStored)
	w.Spans.rest(j, c)
	w.HoldSlot(j)
	w.Update(func(*schedule.Schedule) {
		j.DropIntentsLocked()
		j.Marks.Replace(j.Part, seq)
		j.Lost, j.Flown = nil, nil
		w.PollLocked(j)
	})
}

// MarkOf returns the mark of a job's operation.
func MarkOf(j *lane.Job) queue.RetryMark {
	return queue.RetryMark{
		Seq: j.Seq, Calls: j.Calls, Attempts: j.Attempts, Billed: string(j.Doubt.Billed), Idempotency: j.Doubt.Identity, Crashes: j.Crashes,
		Status: j.Status, Answered: j.AnsweredAt, Accepted: j.Accepted, KeySum: queue.KeySum(j.Queue.Key), Operation: j.Operation,
	}
}

// PollLocked lets a job be polled whose mark is stored. Intents of earlier owners stay until the job has ended: such an
// owner may have sent the end of the operation, and that write may still arrive.
func (w *Operations) PollLocked(j *lane.Job) {
	j.Orders, j.Failed = nil, ""
	w.Sched.Submit(j.Job, j.Operation.Holds)
	w.LeaveIdleLocked(j.Queue) // the key may be paused, or this operation may hold its last slot
	w.begin(j)
}

// slotMargin is how long an operation's slot is held after the last poll. It keeps the slot taken while the end is
// being stored.
const slotMargin = time.Minute

// HoldLocked makes the operation of a found job hold its slot at once, if the operation holds one. Calls of other jobs
// may start before this job is polled.
func (w *Operations) HoldLocked(j *lane.Job) {
	if j.Operation.Holds {
		w.Sched.Pipe.KeepSlot(j.Job)
		w.HoldSlot(j)
	}
}

// HoldSlot makes an operation hold its slot of the limits of calls in flight, if the configuration asked for that. It
// also ends the call's own grant. If the process dies before that, the grant ends with its lease.
func (w *Operations) HoldSlot(j *lane.Job) {
	if !w.holdsSlot(j) {
		return
	}
	left := max(0, w.WallTime(w.Now()).Until(j.Operation.Until)) + slotMargin
	uses := []bucket.Use{{Key: j.Queue.Key, Grant: bucket.Grant{Serial: slotOf(j)}, Hold: left}}
	if j.Granted != nil {
		uses = append(uses, *j.Granted)
		j.Granted = nil
	}
	w.slots(context.Background(), uses)
}

// Forget drops the operation that an earlier call of a found job began, and gives back its slot, because the job is
// called again.
func (w *Operations) Forget(j *lane.Job) {
	w.letSlotGo(j)
	j.Operation = nil
}

// letSlotGo gives back the slot that a job's operation held.
func (w *Operations) letSlotGo(j *lane.Job) {
	if j.Operation == nil || !w.holdsSlot(j) {
		return
	}
	w.slots(context.Background(), []bucket.Use{{Key: j.Queue.Key, Grant: bucket.Grant{Serial: slotOf(j)}}})
}

// holdsSlot reports whether a job's operation holds a slot at the store. A store in this process keeps the slot even if
// no limit counts it yet, because a limit may be added, or the api may join an account.
func (w *Operations) holdsSlot(j *lane.Job) bool {
	return j.Operation.Holds && j.Terms != nil && (w.Clock == schedule.OwnClock || len(j.Terms.API.Rules.Shared) > 0)
}

// slotOf returns the serial of the slot that a job's operation holds. It is the same for every owner.
func slotOf(j *lane.Job) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(j.Origin())) // a hash never fails
	return -1 - int64(h.Sum64()>>12)
}

// End ends a job whose operation has ended or is given up. r is the last answer to a poll, and out is what it means for
// the job. The job must be settling. End blocks until the end is stored, or the worker stops.
func (w *Operations) End(ctx context.Context, j *lane.Job, r httpcall.Response, out httpcall.Outcome) {
	if !w.Reload(ctx, j) {
		return
	}
	j.Answered(r)
	fault.Pass(fault.CallAnswered)
	if !w.intendEnd(ctx, j) {
		return
	}
	var more Beyond
	j.Bill.Usage, j.Holdup = nil, schedule.Holdup{}
	record := func(out httpcall.Outcome) *ledger.Record { return w.EndRecord(j, r, out, more) }
	if out.Verdict == httpcall.Delivered {
		more = w.over(j, r)
		// The stored result has the price of the whole job.
		j.Bill.Usage, j.Bill.Paid = j.Terms.API.UsageOf(r), j.Operation.Price+more.Price
		w.keepResult(ctx, j, r, record, out)
		return
	}
	switch at, ok := w.Bar(ctx, j); {
	case !ok:
	case at != 0: // an earlier owner has stored its result
		c := record(httpcall.Outcome{Verdict: httpcall.Delivered, Billed: out.Billed})
		c.Result = at
		if w.KeepRecord(ctx, j, c) {
			w.Spans.End(j, nil)
			w.Finish(j, ledger.Done)
		}
	default:
		w.Mu.Lock()
		j.Status = r.Status
		w.Mu.Unlock()
		w.Bury(ctx, j, out.Reason, out.Detail, record(out))
	}
}

// intendEnd stores the intent that the end of a job's operation may be stored from now on. It reports whether the
// intent is stored.
func (w *Operations) intendEnd(ctx context.Context, j *lane.Job) bool {
	i := j.Intent(j.Calls)
	i.Entry, i.Idempotency = 0, j.Doubt.Keyed() // the key is that of the call; the api may have forgotten it since
	var seq uint64
	ok := w.persist(ctx, "intent of an operation's end", j, func() (err error) {
		if seq, err = j.Part.Markers.Intend(i); errors.Is(err, queue.ErrFenced) {
			j.Part.Intents.Refused()
		}
		return err
	})
	if ok {
		fault.Pass(fault.IntentStored)
		w.Mu.Lock()
		j.Announced.Marks = append(j.Announced.Marks, &lane.IntentMark{Seq: seq, Users: 1})
		w.Mu.Unlock()
	}
	return ok
}

// EndRecord builds the ledger's record of the end of a job's operation. The record is of no call: it charges only what
// the operation took in addition to what the call was charged.
func (w *Operations) EndRecord(j *lane.Job, r httpcall.Response, out httpcall.Outcome, more Beyond) *ledger.Record {
	c := Record(j, r, out)
	w.Mu.Lock()
	tat := max(w.Sched.At(w.Now()).KnownTAT(j.Queue.Key), w.Sched.At(w.Now()).Floor(j.Queue))
	w.Mu.Unlock()
	if c.TAT = 0; tat != 0 {
		c.TAT = tat + w.Env.Ahead()
	}
	c.Operation, c.Polled, c.Planned, c.Final = j.Operation, true, r.Ended.UTC(), true
	c.Price, c.Costs, c.Reserved, c.Estimated, c.Unsettled = ledger.Money(more.Price), more.Units, nil, nil, nil
	if slices.ContainsFunc(more.Units, func(n int64) bool { return n > 0 }) {
		c.Estimated = more.Estimates
	}
	if c.Costs == nil {
		c.Costs = make([]int64, len(c.Limits))
		j.ChargeBudgets(c, more.Price)
	}
	return c
}
