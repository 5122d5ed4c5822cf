package dispatcher

import (
	"context"
	"fmt"
	"time"

	"weir/bucket/fault"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/dispatcher/recorder"
	"weir/dispatcher/schedule"
)

// A call that has an intent, and neither a record nor a result, is lost: it may have been made. Its record is stored before
// anything else comes of its job, so that the ledger tells of every call that the api may have seen. It is told as one that
// began when its intent was stored, or when the flight recorder says, with what the intent says of it: the configuration may be another by
// now.

// lose notes that a job's last call is lost, unless its result is found.
func (j *job) lose(i *foundIntent) {
	j.lost, j.Deaths, j.intendedAt = i, i.Deaths+1, i.stored
	j.lastCall = &deadletter.LastCall{Started: i.stored, Bytes: -1, CutBy: deadletter.CutByDeath, Target: i.Target}
}

// settleLost ends a job with a lost call as a letter, or lets it be called again, where the api takes that for the same call.
// It does neither where the call's result has come after all.
func (w *apiWorker) settleLost(ctx context.Context, j *job) {
	fault.Pass(fault.UnknownFound)
	if !w.reload(ctx, j) {
		return
	}
	w.mu.Lock()
	j.Calls = max(j.Calls, j.lost.Call)
	w.mu.Unlock()
	if !w.lookUp(ctx, j) {
		return
	}
	w.mu.Lock()
	j.doubt.recall(deadletter.BilledUnknown, j.lost.Idempotency)
	j.doubt.never = j.doubt.never || !j.lost.Repeatable
	again := j.Deaths < schedule.MostDeaths && j.doubt.allows(w.terms.api)
	w.mu.Unlock()
	if again {
		w.repeatLost(ctx, j)
		return
	}
	if j.part.Lease != nil { // the replica that made the call may be alive
		switch at, ok := w.fenceResult(ctx, j); {
		case !ok:
			return
		case at != 0:
			w.endWithResult(ctx, j, at)
			return
		}
	}
	w.buryLost(ctx, j)
}

func (w *apiWorker) lostDetail(j *job) string {
	if f := j.flown; f != nil && f.State > recorder.Prepared {
		return fmt.Sprintf("the worker died while call %d was under way, which was sent at %s", j.Calls, ledger.Stamp(f.Begun))
	}
	if j.part.isRestored(j.Seq) {
		return w.d.opts.Restored.detail()
	}
	return fmt.Sprintf("the worker died after call %d was to start and before its outcome was stored", j.Calls)
}

// repeatLost lets a job be called again under its key.
func (w *apiWorker) repeatLost(ctx context.Context, j *job) {
	w.again(ctx, j, w.lostCall(j, httpcall.Outcome{Verdict: httpcall.Again, Billed: deadletter.BilledUnknown, Detail: w.lostDetail(j)}), 1)
}

func (w *apiWorker) buryLost(ctx context.Context, j *job) {
	out := httpcall.Unknown(deadletter.BilledUnknown, "%s", w.lostDetail(j))
	switch {
	case j.Deaths >= schedule.MostDeaths && j.lost.Repeatable:
		out.Reason = deadletter.Exhausted
		out.Detail = fmt.Sprintf("given up as poison: %d workers died while they called it, one after the other", j.Deaths)
	case j.lost.Repeatable:
		out.Detail += "; how calls carry their idempotency keys has changed since"
	}
	w.bury(ctx, j, out.Reason, out.Detail, w.lostCall(j, out))
}

// lostCall is the ledger's record of a lost call. Who goes on from it lets the key wait as if the call had been made just now:
// when it was made nobody knows.
func (w *apiWorker) lostCall(j *job, out httpcall.Outcome) *ledger.Record {
	w.d.metrics.recovered.WithLabelValues(w.name, "unknown").Inc()
	w.metrics.calls.count(out.Name())
	if c := contained(func() { j.taken, _ = j.terms.costs(j.message) }); c != nil {
		j.taken = nil // nobody knows its costs
	}
	at := j.lost.stored
	if j.flown != nil && !j.flown.Begun.IsZero() {
		at = j.flown.Begun
	}
	c := w.record(j, httpcall.Response{Sent: true, Started: at, Ended: at}, out)
	c.Planned = time.Time{}
	j.asIntended(c)
	if w.clock == schedule.OwnClock && (j.flown == nil || j.flown.State == recorder.Untold) {
		w.mu.Lock()
		waits := w.now().Add(w.s.DrainTime(j.Queue.Limits))
		w.mu.Unlock()
		c.TAT = max(c.TAT, waits+w.d.opts.Ahead())
	}
	return c
}

// price is what the call that an intent is of costs.
func (i *foundIntent) price(present *httpcall.API) int64 {
	if i.Timeout == 0 {
		return present.Price // the intent does not tell
	}
	return i.Price
}

// asIntended has the record of a call that nobody recorded say what its intent does.
func (j *job) asIntended(c *ledger.Record) {
	if j.lost == nil {
		c.Idempotency = "" // nobody knows
		return
	}
	price := j.lost.price(j.terms.api)
	c.Price, c.Idempotency = ledger.Money(price), j.lost.Idempotency
	for i := range min(len(c.Costs), len(j.terms.api.Rules.Shared)) {
		if j.terms.api.Rules.Shared[i].Budget != nil {
			c.Costs[i] = price
		}
	}
}
