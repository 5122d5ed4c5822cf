package dispatcher

import (
	"context"
	"fmt"
	"time"

	"weir/bucket/fault"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
)

// A call that has an intent, and neither a record nor a result, is lost: it may have been made. Its record is stored before
// anything else comes of its job, so that the ledger tells of every call that the api may have seen. It is told as one that
// began when its intent was stored, with what the intent says of it: the configuration may be another by now.

// lose notes that a job's last call is lost, unless its result is found.
func (t *job) lose(i *foundIntent) { t.lost, t.Deaths, t.intendedAt = i, i.Deaths+1, i.stored }

// settleLost ends a job with a lost call as a letter, or lets it be called again, where the api takes that for the same call.
// It does neither where the call's result has come after all.
func (l *lane) settleLost(ctx context.Context, t *job) {
	fault.Pass(fault.UnknownFound)
	if !l.reload(ctx, t) {
		return
	}
	l.mu.Lock()
	t.Calls = max(t.Calls, t.lost.Call)
	l.mu.Unlock()
	if !l.lookUp(ctx, t) {
		return
	}
	l.mu.Lock()
	t.doubt.recall(deadletter.BilledUnknown, t.lost.Idempotency)
	t.doubt.never = t.doubt.never || !t.lost.Repeatable
	again := t.Deaths < schedule.MostDeaths && t.doubt.allows(l.terms.api)
	l.mu.Unlock()
	if again {
		l.repeatLost(ctx, t)
		return
	}
	if t.part.Lease != nil { // the replica that made the call may be alive
		switch at, ok := l.bar(ctx, t); {
		case !ok:
			return
		case at != 0:
			l.endWithResult(ctx, t, at)
			return
		}
	}
	l.buryLost(ctx, t)
}

func (t *job) lostDetail() string {
	return fmt.Sprintf("the worker died after call %d was to start and before its outcome was stored", t.Calls)
}

// repeatLost lets a job be called again under its key.
func (l *lane) repeatLost(ctx context.Context, t *job) {
	l.again(ctx, t, l.lostCall(t, httpcall.Outcome{Verdict: httpcall.Again, Billed: deadletter.BilledUnknown, Detail: t.lostDetail()}), 1)
}

func (l *lane) buryLost(ctx context.Context, t *job) {
	out := httpcall.Unknown(deadletter.BilledUnknown, "%s", t.lostDetail())
	switch {
	case t.Deaths >= schedule.MostDeaths && t.lost.Repeatable:
		out.Reason = deadletter.Exhausted
		out.Detail = fmt.Sprintf("given up as poison: %d workers died while they called it, one after the other", t.Deaths)
	case t.lost.Repeatable:
		out.Detail += "; how calls carry their idempotency keys has changed since"
	}
	l.bury(ctx, t, out.Reason, out.Detail, l.lostCall(t, out))
}

// lostCall is the ledger's record of a lost call. Who goes on from it lets the key wait as if the call had been made just now:
// when it was made nobody knows.
func (l *lane) lostCall(t *job, out httpcall.Outcome) *ledger.Record {
	l.d.metrics.calls.WithLabelValues(l.name, out.Name()).Inc()
	l.d.metrics.spend.add(l.name, t.lost.price(t.terms.api))
	if c := contained(func() { t.taken, _ = t.terms.costs(t.message) }); c != nil {
		t.taken = nil // nobody knows its costs
	}
	at := t.lost.stored
	c := l.record(t, httpcall.Response{Sent: true, Started: at, Ended: at}, out)
	c.Planned = time.Time{}
	t.asIntended(c)
	if l.clock == schedule.OwnClock {
		l.mu.Lock()
		waits := l.now().Add(l.s.DrainTime(t.Queue.Limits))
		l.mu.Unlock()
		c.TAT = max(c.TAT, waits+l.d.opts.Ahead())
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
func (t *job) asIntended(c *ledger.Record) {
	if t.lost == nil {
		c.Idempotency = "" // nobody knows
		return
	}
	price := t.lost.price(t.terms.api)
	c.Price, c.Idempotency = ledger.Money(price), t.lost.Idempotency
	for i := range min(len(c.Costs), len(t.terms.api.Rules.Shared)) {
		if t.terms.api.Rules.Shared[i].Budget != nil {
			c.Costs[i] = price
		}
	}
}
