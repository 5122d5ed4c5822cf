package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"weir/bucket/stream"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/dispatcher/recorder"
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

// unproven notes what is known of a call whose result may be missing. Its intent, and what was noted of it, may be gone.
func (j *job) unproven(i *foundIntent, noted *recorder.Found) {
	if i == nil || i.Call != j.Calls {
		return
	}
	j.lose(i)
	j.intendedAt = time.Time{} // its record is known: nothing is to be looked up by the intent
	if noted.State == recorder.Answered && verdicts[noted.Answer.Verdict] == httpcall.Delivered {
		j.flown = noted
	}
}

// endUnproven ends a job whose record says that it is done, once it is known where its result is.
func (w *apiWorker) endUnproven(ctx context.Context, j *job, last ledger.LastCall) {
	if !w.reload(ctx, j) {
		return
	}
	c, at, ok := w.resultBeside(ctx, j, last)
	switch {
	case !ok:
	case at != 0:
		w.finish(j, ledger.Done)
	default:
		w.endUnkept(ctx, j, c)
	}
}

// resultBeside reads a job's last record, and looks where the result is that was under way beside it, 0 for nowhere. It blocks until the
// servers have answered; ok is false where the worker stops before. One job is looked up at a time.
func (w *apiWorker) resultBeside(ctx context.Context, j *job, last ledger.LastCall) (c *ledger.Record, at uint64, ok bool) {
	w.looking.Lock()
	defer w.looking.Unlock()
	for {
		c, at, err := w.lookBeside(ctx, j, last)
		if err == nil {
			return c, at, true
		}
		w.log.Error("whether a result is stored could not be looked up; trying again", "key", j.Queue.Key, "seq", j.Seq, "err", err)
		if !stream.Sleep(ctx, loadRetry) {
			return nil, 0, false // the next start finds the job again
		}
	}
}

func (w *apiWorker) lookBeside(ctx context.Context, j *job, last ledger.LastCall) (c *ledger.Record, at uint64, err error) {
	of := ledger.Job{API: w.name, Key: j.Queue.Key, ID: j.message.ID, Stream: j.part.bucket.Name(), Seq: j.Seq, Accepted: j.accepted}
	if c, err = ledger.At(ctx, w.d.opts.JetStream, last.At); err != nil && !errors.Is(err, ledger.ErrUnreadable) {
		return nil, 0, err
	}
	if c == nil || c.Origin() != j.origin() { // the ledger has let go of it
		c = &ledger.Record{Call: last.Call, Status: last.Status, Ended: j.accepted.Time(), Stored: j.accepted.Time()}
	}
	at, err = ledger.ResultOf(ctx, w.d.opts.JetStream, of, resultSince(c).Add(-w.d.opts.Tail.OrDefault().Leeway))
	return c, at, err
}

// resultSince is from when on the result of a recorded call may have been stored. A ledger that took nothing for a while has a record that is
// much later than its result.
func resultSince(c *ledger.Record) time.Time {
	if c.Ended.Before(c.Stored) {
		return c.Ended
	}
	return c.Stored
}

// endUnkept ends a job whose last record says that it is done, and whose result is not stored.
func (w *apiWorker) endUnkept(ctx context.Context, j *job, c *ledger.Record) {
	if j.flown != nil && j.flown.Answer != nil {
		w.keepNoted(ctx, j, c)
		return
	}
	w.d.metrics.recovered.WithLabelValues(w.name, "unknown").Inc()
	j.lastCall = j.answeredCall(c)
	w.mu.Lock()
	j.doubt.recall(deadletter.BilledYes, c.Idempotency)
	j.doubt.never = j.doubt.never || c.Idempotency == ""
	j.Deaths = max(j.Deaths, 1)
	again := j.Deaths < schedule.MostDeaths && j.doubt.allows(w.terms.api)
	w.mu.Unlock()
	held, ok := w.holdsResults(ctx, j, resultSince(c))
	if !ok {
		return
	}
	out := httpcall.Unknown(deadletter.BilledYes, "call %d was answered %d and is in the ledger, and weir ended before its result was stored", c.Call, c.Status)
	if !held {
		out.Detail = fmt.Sprintf("call %d was answered %d and is in the ledger; its result is not there: it was never stored, or has gone with its age since", c.Call, c.Status)
	}
	if again && held {
		out.Verdict, out.Reason = httpcall.Again, ""
		w.again(ctx, j, w.unkeptRecord(j, c, out), 1)
		return
	}
	if j.part.Lease != nil { // the replica that made the call may be alive
		switch at, ok := w.fenceResult(ctx, j); {
		case !ok:
			return
		case at != 0:
			w.finish(j, ledger.Done)
			return
		}
	}
	w.bury(ctx, j, out.Reason, out.Detail, w.unkeptRecord(j, c, out))
}

// holdsResults reports whether results of a time are still there if they were stored. ok is false where the worker stops before that is
// known.
func (w *apiWorker) holdsResults(ctx context.Context, j *job, at time.Time) (held, ok bool) {
	for {
		held, err := ledger.HoldsResults(ctx, w.d.opts.JetStream, at)
		if err == nil {
			return held, true
		}
		w.log.Error("whether a result is stored could not be looked up; trying again", "key", j.Queue.Key, "seq", j.Seq, "err", err)
		if !stream.Sleep(ctx, loadRetry) {
			return false, false
		}
	}
}

// answeredCall is what a letter tells of a call by its record.
func (j *job) answeredCall(c *ledger.Record) *deadletter.LastCall {
	of := &deadletter.LastCall{Started: c.Started, Ended: c.Ended, Bytes: -1}
	if j.lost != nil {
		of.Target = j.lost.Target
	}
	return of
}

// keepNoted stores the result of a call from what the process noted that made it. The call's record is stored already.
func (w *apiWorker) keepNoted(ctx context.Context, j *job, c *ledger.Record) {
	w.d.metrics.recovered.WithLabelValues(w.name, "answered").Inc()
	msg := w.result(j, responseOf(j.flown.Answer))
	at, stored := w.storeResult(ctx, j, msg, nil)
	if !stored {
		return
	}
	if j.part.Lease != nil {
		switch stands, ok := w.fenced(ctx, j, at); {
		case !ok:
			return
		case stands == 0: // an owner in between barred it, and ended before it wrote down that the job is unknown
			j.doubt.recall(deadletter.BilledYes, c.Idempotency)
			j.lastCall = j.answeredCall(c)
			out := httpcall.Unknown(deadletter.BilledYes, "the api answered %d, and another replica had barred the result before it ended", c.Status)
			w.bury(ctx, j, out.Reason, out.Detail, w.unkeptRecord(j, c, out))
			return
		}
	}
	if j.message.ReplyTo != "" {
		w.d.reply(j.message.ReplyTo, msg)
	}
	w.traceEnd(j, nil)
	w.finish(j, ledger.Done)
}

// unkeptRecord says in the ledger that the result of a call was not kept. What the call took and cost its own record says.
func (w *apiWorker) unkeptRecord(j *job, of *ledger.Record, out httpcall.Outcome) *ledger.Record {
	c := w.record(j, httpcall.Response{Status: of.Status, Started: time.Now()}, out)
	c.Unkept, c.Call, c.Billed, c.Price, c.Idempotency = true, of.Call, deadletter.BilledYes, ledger.Money(0), of.Idempotency
	c.Planned, c.Ended, c.Answer, c.Unsettled = time.Time{}, c.Started, nil, nil
	c.Costs = slices.Repeat([]int64{0}, len(c.Limits))
	return c
}
