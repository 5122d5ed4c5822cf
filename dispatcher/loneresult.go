package dispatcher

import (
	"context"
	"strconv"
	"time"

	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/dispatcher/recorder"
	"weir/dispatcher/recovery"
	"weir/dispatcher/schedule"

	"github.com/nats-io/nats.go"
)

// A record is stored after its call's result (settle.go), so a worker may die when the result is stored and the record is not. Its job is in
// the stream then, and must not be called again. Its record is written from the result and the call's intent, and from what the flight
// recorder has of the call's charges and pace. Records are stored within seconds of their results, or nothing more is called: so the results
// from shortly before the ledger's newest record on are all that can lack one, where there is no record at all the last 500,000.

// endWithResult ends a job that was found with a result and no record of it. A producer that waits for the result gets it, again perhaps.
func (f *foundJob) endWithResult(ctx context.Context) {
	e := &f.w.evidence
	msg, ok := e.result(ctx, e.of(f.job), f.result)
	if !ok {
		return
	}
	if msg == nil || msg.Subject == fenceSubject {
		f.endWithoutResult(ctx)
		return
	}
	calls, _ := strconv.Atoi(msg.Header.Get(ledger.HeaderCalls)) // weir's own headers: always there
	attempts, _ := strconv.Atoi(msg.Header.Get(ledger.HeaderAttempts))
	f.w.mu.Lock()
	f.Calls, f.attempts = max(f.Calls, calls), max(f.attempts, attempts)
	f.doubt.billed = f.doubt.billed.Worst(deadletter.BilledYes)
	f.w.mu.Unlock()
	if f.lost != nil && f.lost.Call == calls && f.noted.State > recorder.Prepared {
		f.flown = &f.noted // the result is of the call that was noted, not of an earlier one
	}
	if f.message.ReplyTo != "" {
		f.w.d.reply(f.message.ReplyTo, &nats.Msg{Header: msg.Header, Data: msg.Data})
	}
	if f.w.keepRecord(ctx, f.job, f.resultRecord(msg.Header)) {
		f.w.traceEnd(f.job, nil)
		f.w.finish(f.job, ledger.Done)
	}
}

// endWithoutResult goes on with a job whose result was read of, and is gone: with what else is known of it. No mark of an end tells that it was
// not called.
func (f *foundJob) endWithoutResult(ctx context.Context) {
	f.result, f.known.Result, f.known.Noted, f.known.Overruled = 0, false, recorder.Untold, true
	if f.lost != nil {
		f.settle(ctx, recovery.Lost)
		return
	}
	f.w.unrecorded.never(f.job)
	f.w.update(func(*schedule.Schedule) {
		f.doubt.recall(deadletter.BilledYes, "") // nobody knows under which key
		f.w.restLocked(f.job, 1)
	})
}

// resultRecord is the ledger's record of a call of which only the result was stored. What the call took from the limits is what its process
// noted, else what it was reckoned to cost.
func (f *foundJob) resultRecord(result nats.Header) *ledger.Record {
	status, _ := strconv.Atoi(result.Get(ledger.HeaderStatus)) // weir's own headers: always there
	started, _ := time.Parse(time.RFC3339Nano, result.Get(ledger.HeaderCalledAt))
	ended, _ := time.Parse(time.RFC3339Nano, result.Get(ledger.HeaderFinishedAt))
	out := httpcall.Outcome{Verdict: httpcall.Delivered, Billed: deadletter.BilledYes, Detail: "the worker died after its result was stored"}
	if f.flown != nil && f.flown.Answer != nil {
		f.chargeAgain(f.flown.Answer)
	} else {
		f.charge()
	}
	c := f.w.record(f.job, httpcall.Response{Sent: true, Status: status, Started: started, Ended: ended}, out)
	if f.flown == nil {
		c.Planned = time.Time{}
		f.asIntended(c)
	}
	f.waitOut(c)
	return c
}
