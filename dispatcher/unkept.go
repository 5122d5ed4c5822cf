package dispatcher

import (
	"context"
	"fmt"
	"slices"
	"time"

	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/dispatcher/recorder"
	"weir/dispatcher/recovery"
	"weir/dispatcher/schedule"
)

// A call's result and its record are under way together (settle.go), so a death may leave a record that says done and no result. Such a
// record says so of itself (ledger.Record.Beside), and its job is still in the queue: it is deleted when both are stored. Whoever finds
// the job looks for the result, first among those that were read with the ledger's end, which has nearly all of them, then by the job's
// key. Where there is none:
//
//   - the answer is in the flight recorder, and the result is stored from it;
//   - or a record is stored that says that it was not kept (ledger.Record.Unkept), and takes the other's place as the job's newest. Then
//     the job is called again with the same idempotency key, or becomes a letter unknown, as after a lost call.
//
// A job that stayed in its queue for longer than results are kept looks the same though its result was stored. It is not called again, and
// becomes a letter: to say too much is better than to lose an answer without a word.

// loseProof notes what is known of a call whose result may be missing. Its intent, and what was noted of it, may be gone.
func (f *foundJob) loseProof() {
	i := f.intent
	if i == nil || i.Call != f.Calls {
		return
	}
	f.lose(i)
	f.intendedAt = time.Time{} // its record is known: nothing is to be looked up by the intent
	if f.noted.State == recorder.Answered && verdicts[f.noted.Answer.Verdict] == httpcall.Delivered {
		f.flown = &f.noted
	}
}

// endUnproven ends a job whose record says that it is done, once it is known where its result is.
func (f *foundJob) endUnproven(ctx context.Context) {
	if f.record != nil { // it was looked up together with the results, and there is none
		f.attempts = f.record.Attempt
		f.endUnkept(ctx)
		return
	}
	e := &f.w.evidence
	var ok bool
	if f.record, f.result, ok = e.resultBeside(ctx, e.of(f.job), f.last); !ok {
		return
	}
	if f.result != 0 {
		f.w.finish(f.job, ledger.Done)
		return
	}
	f.endUnkept(ctx)
}

// endUnkept ends a job whose last record says that it is done, and whose result is not stored.
func (f *foundJob) endUnkept(ctx context.Context) {
	if f.flown != nil && f.flown.Answer != nil {
		f.keepNoted(ctx)
		return
	}
	w, c := f.w, f.record
	w.d.metrics.recovered.WithLabelValues(w.name, "unknown").Inc()
	f.doubtUnkept()
	w.mu.Lock()
	f.doubt.never = f.doubt.never || c.Idempotency == ""
	f.Deaths = max(f.Deaths, 1)
	open := recovery.Open{
		Answered: true, Keyed: c.Idempotency != "", Same: f.doubt.allows(w.terms.api), Poisonous: f.Deaths >= schedule.MostDeaths,
	}
	w.mu.Unlock()
	var ok bool
	if open.Held, ok = w.evidence.holdsResults(ctx, w.evidence.of(f.job), resultSince(c)); !ok {
		return
	}
	out := httpcall.Unknown(deadletter.BilledYes, "call %d was answered %d and is in the ledger, and weir ended before its result was stored", c.Call, c.Status)
	if !open.Held {
		out.Detail = fmt.Sprintf("call %d was answered %d and is in the ledger; its result is not there: it was never stored, or has gone with its age since", c.Call, c.Status)
	}
	if recovery.Mend(open) == recovery.Repeats {
		out.Verdict, out.Reason = httpcall.Again, ""
		w.again(ctx, f.job, f.unkeptRecord(out), 1)
		return
	}
	at, ok := resultBar{w, f.job}.set(ctx) // the replica that made the call may be alive
	switch {
	case !ok:
		return
	case at != 0:
		w.finish(f.job, ledger.Done)
		return
	}
	w.bury(ctx, f.job, out.Reason, out.Detail, f.unkeptRecord(out))
}

// doubtUnkept takes in that the last call was charged, and that its result is gone.
func (f *foundJob) doubtUnkept() {
	c := f.record
	f.w.mu.Lock()
	f.doubt.recall(deadletter.BilledYes, c.Idempotency)
	f.w.mu.Unlock()
	f.lastCall = &deadletter.LastCall{Started: c.Started, Ended: c.Ended, Bytes: -1}
	if f.lost != nil {
		f.lastCall.Target = f.lost.Target
	}
}

// keepNoted stores the result of a call from what the process noted that made it. The call's record is stored already.
func (f *foundJob) keepNoted(ctx context.Context) {
	w := f.w
	w.d.metrics.recovered.WithLabelValues(w.name, "answered").Inc()
	msg := w.result(f.job, responseOf(f.flown.Answer))
	at, stored := w.storeResult(ctx, f.job, msg, nil)
	if !stored {
		return
	}
	open, ok := resultBar{w, f.job}.isOpen(ctx, at)
	switch {
	case !ok:
		return
	case !open:
		f.doubtUnkept()
		out := barred(f.record.Status)
		w.bury(ctx, f.job, out.Reason, out.Detail, f.unkeptRecord(out))
		return
	}
	if f.message.ReplyTo != "" {
		w.d.reply(f.message.ReplyTo, msg)
	}
	w.traceEnd(f.job, nil)
	w.finish(f.job, ledger.Done)
}

// unkeptRecord says in the ledger that the result of a call was not kept. What the call took and cost its own record says.
func (f *foundJob) unkeptRecord(out httpcall.Outcome) *ledger.Record {
	of := f.record
	c := f.w.record(f.job, httpcall.Response{Status: of.Status, Started: time.Now()}, out)
	c.Unkept, c.Call, c.Billed, c.Price, c.Idempotency = true, of.Call, deadletter.BilledYes, ledger.Money(0), of.Idempotency
	c.Planned, c.Ended, c.Answer, c.Unsettled = time.Time{}, c.Started, nil, nil
	c.Costs = slices.Repeat([]int64{0}, len(c.Limits))
	return c
}
