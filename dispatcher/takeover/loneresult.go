package takeover

import (
	"context"
	"strconv"
	"time"

	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/dispatcher/recorder"
	"weir/dispatcher/recovery"
	"weir/dispatcher/schedule"
	"weir/dispatcher/settle"

	"github.com/nats-io/nats.go"
)

// A call's record is stored after its result (dispatcher/settle/settle.go), so a worker may die between the two writes.
// The job is then still in the stream and must not be called again. Recovery writes the missing record from the result,
// from the call's intent, and from the charges and the pace that the flight recorder noted for the call.
//
// Only results that were stored since shortly before the ledger's newest record can lack a record: weir stores a record
// within seconds of its result, or else makes no more calls. If the ledger has no record at all, recovery looks at the
// last 500,000 results.

// endWithResult ends a job that was found with a result and without a record of it. If the producer named a reply
// subject, endWithResult sends the result there, perhaps a second time.
func (f *foundJob) endWithResult(ctx context.Context) {
	e := &f.w.Evidence
	msg, ok := e.Result(ctx, e.Of(f.Job), f.result)
	if !ok {
		return
	}
	if msg == nil || msg.Subject == settle.FenceSubject {
		f.endWithoutResult(ctx)
		return
	}
	if f.found.Uncalled() && msg.Header.Get(ledger.HeaderReused) != "" {
		f.endUncalled(ctx, msg)
		return
	}
	calls, _ := strconv.Atoi(msg.Header.Get(ledger.HeaderCalls)) // weir always sets its own headers
	attempts, _ := strconv.Atoi(msg.Header.Get(ledger.HeaderAttempts))
	f.w.Mu.Lock()
	f.Calls, f.Attempts = max(f.Calls, calls), max(f.Attempts, attempts)
	if f.Lost != nil {
		// The result may have come late, from a call before the lost one. That call has a record already, with an
		// unknown outcome. So only the lost call's record can say that the job has ended.
		f.Calls = max(f.Calls, f.Lost.Call)
	}
	f.Doubt.Billed = f.Doubt.Billed.Worst(deadletter.BilledYes)
	f.w.Mu.Unlock()
	if f.Lost != nil && f.Lost.Call == calls && f.noted.State > recorder.Prepared {
		f.Flown = &f.noted // the result came from the call that was noted, not from an earlier one
	}
	if f.Message.ReplyTo != "" {
		f.w.Env.Reply(f.Message.ReplyTo, &nats.Msg{Header: msg.Header, Data: msg.Data})
	}
	// True if the ledger has the record of the result's call, and the one that ended the job.
	recorded := f.Lost == nil && f.found.Ended && calls <= f.found.Recorded
	if recorded || f.w.KeepRecord(ctx, f.Job, f.recordOf(msg)) {
		f.w.Spans.End(f.Job, nil)
		f.w.Finish(f.Job, ledger.Done)
	}
}

// recordOf builds the record that a result lacks: that of the call, or that of the end of the call's operation.
func (f *foundJob) recordOf(result *nats.Msg) *ledger.Record {
	if f.Operation == nil || f.Lost != nil {
		return f.resultRecord(result.Header)
	}
	r, out := settle.StoredResponse(result.Header)
	r.Started = r.Ended                                                  // the result has the start of the call
	price, _ := ledger.ParseMoney(result.Header.Get(ledger.HeaderPrice)) // weir's own header: always there
	c := f.w.Operations.EndRecord(f.Job, r, out, settle.Beyond{Price: max(0, price-f.Operation.Price)})
	c.Result = f.result
	return c
}

// endUncalled ends a job that was never called and was found with another job's answer as its result. It does what the
// former owner would have done.
func (f *foundJob) endUncalled(ctx context.Context, msg *nats.Msg) {
	if f.Message.ReplyTo != "" {
		f.w.Env.Reply(f.Message.ReplyTo, &nats.Msg{Header: msg.Header, Data: msg.Data})
	}
	c := settle.ReusedRecord(f.Job, msg.Header)
	c.Result = f.result
	f.w.Mu.Lock()
	drain := f.w.Sched.Policy().DrainTime(f.Queue.Limits)
	f.w.Mu.Unlock()
	if !f.w.Env.Tail.Covers(f.w.Name, f.w.Now().Add(-drain)) {
		f.waitOut(c) // the record becomes the newest of a key whose pace was not read
	}
	if f.w.KeepRecord(ctx, f.Job, c) {
		f.w.Spans.End(f.Job, nil)
		f.w.Finish(f.Job, ledger.Reused)
	}
}

// endForgone ends a job that its former owner was ending with another job's answer, if the result is stored. Otherwise
// it bars that owner's result and lets the job wait, because the job was never called.
func (f *foundJob) endForgone(ctx context.Context) {
	at, ok := f.w.BarReused(ctx, f.Job)
	if !ok {
		return
	}
	if at == 0 {
		f.MustCall = f.Part.Lease != nil // the bar would keep out another such result, too
		f.wait(ctx)
		return
	}
	f.result, f.found.Result, f.found.Reused = at, true, true
	f.endWithResult(ctx)
}

// endWithoutResult handles a job whose result existed when the results were read, but is gone now. It judges the job by
// everything else that is known. A mark of an end does not prove that the job was not called.
func (f *foundJob) endWithoutResult(ctx context.Context) {
	uncalled := f.found.Uncalled()
	f.result, f.found.Result, f.found.Noted, f.found.Overruled = 0, false, recorder.Untold, true
	switch {
	case f.Lost != nil: // checked before Ended, which the record of an earlier call may have set
		f.settle(ctx, recovery.Lost)
		return
	case f.found.Ended:
		f.settle(ctx, recovery.EndsByLast)
		return
	case f.found.Submitted:
		f.settle(ctx, recovery.Polls)
		return
	case uncalled:
		f.wait(ctx)
		return
	}
	f.w.Unrecorded.Never(f.Job)
	f.w.Update(func(*schedule.Schedule) {
		f.Doubt.Recall(deadletter.BilledYes, "") // under an idempotency key that is not known
		f.w.RestLocked(f.Job, 1)
	})
}

// resultRecord builds the ledger's record of a call that left only a result. It charges the call what its process
// noted, or else what the call was estimated to cost.
func (f *foundJob) resultRecord(result nats.Header) *ledger.Record {
	r, out := settle.StoredResponse(result)
	if f.Flown != nil && f.Flown.Answer != nil {
		f.ChargeAgain(f.Flown.Answer)
	} else {
		f.Charge()
	}
	// The result is a reused answer. It says nothing of the lost call, which may have begun.
	if result.Get(ledger.HeaderReused) != "" && f.Lost != nil {
		r.Started, r.Ended = f.Lost.Stored, f.Lost.Stored
	}
	c := settle.Record(f.Job, r, out)
	if f.Flown == nil {
		c.Planned = time.Time{}
		f.AsIntended(c)
	}
	if price, ok := ledger.ParseMoney(result.Get(ledger.HeaderPrice)); ok && f.Lost != nil && result.Get(ledger.HeaderCalls) == strconv.Itoa(f.Lost.Call) {
		f.ChargeBudgets(c, price) // the result is of this call, and says what it cost
	}
	f.waitOut(c)
	c.Result = f.result
	return c
}
