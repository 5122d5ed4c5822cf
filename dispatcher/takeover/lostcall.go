package takeover

import (
	"context"
	"fmt"
	"time"

	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/dispatcher/recorder"
	"weir/dispatcher/recovery"
	"weir/dispatcher/schedule"
	"weir/dispatcher/settle"
)

// A call is lost if it has an intent, but neither a record nor a result: it may have been made. Its record is stored
// before its job is called again or gets its letter, so that the ledger has every call that the api may have seen. By
// the record, the call began when the flight recorder says so, or else when its intent was stored. The record's price
// and the identity of its key are those of the intent, because the configuration may have changed since.

// endLost lets a job with a lost call be called again, if the api treats both calls as the same one. Otherwise it ends
// the job as a letter, unless it finds that the call's result was stored after all.
func (f *foundJob) endLost(ctx context.Context) {
	f.w.Mu.Lock()
	f.Calls = max(f.Calls, f.Lost.Call)
	f.Doubt.Add(deadletter.BilledUnknown, f.Lost.Idempotency)
	keyed := f.Lost.Idempotency != ""
	remedy := recovery.Mend(recovery.Open{
		Keyed: keyed, Same: f.Doubt.Allows(f.w.Terms.API, f.pack(), f.w.WallNow()), Poisonous: f.Deaths >= schedule.MostDeaths,
	})
	f.w.Mu.Unlock()
	if remedy == recovery.Repeats {
		f.w.Update(func(*schedule.Schedule) { f.BindLocked(f.Lost.Pack) })
		f.w.Again(ctx, f.Job, f.lostRecord(httpcall.Outcome{Verdict: httpcall.Again, Billed: deadletter.BilledUnknown, Detail: f.lostDetail()}), 1)
		return
	}
	at, ok := f.w.Bar(ctx, f.Job) // the replica that made the call may still be alive
	switch {
	case !ok:
		return
	case at != 0:
		f.result = at
		f.endWithResult(ctx)
		return
	}
	out := httpcall.Unknown(deadletter.BilledUnknown, "%s", f.lostDetail())
	switch {
	case remedy == recovery.GivesUp:
		out.Reason = deadletter.Exhausted
		out.Detail = fmt.Sprintf("given up as poison: %d workers died while they called it, one after the other", f.Deaths)
	case keyed:
		out.Detail += "; " + f.Doubt.WhyNot(f.w.Terms.API, f.pack(), true)
	}
	f.w.Bury(ctx, f.Job, out.Reason, out.Detail, f.lostRecord(out))
}

// pack returns the idempotency key of the pack in which the lost call was made, "" if the job was called alone.
func (f *foundJob) pack() string {
	if f.Lost.Pack == nil {
		return ""
	}
	return f.Lost.Pack.ID
}

func (f *foundJob) lostDetail() string {
	if f.Flown != nil && f.Flown.State > recorder.Prepared {
		return fmt.Sprintf("the worker died while call %d was under way, which was sent at %s", f.Calls, ledger.Stamp(f.Flown.Begun))
	}
	if f.Part.IsRestored(f.Seq) {
		return f.w.Env.Restored.Detail()
	}
	return fmt.Sprintf("the worker died after call %d was to start and before its outcome was stored", f.Calls)
}

// lostRecord builds the ledger's record of a lost call.
func (f *foundJob) lostRecord(out httpcall.Outcome) *ledger.Record {
	w := f.w
	w.Env.Metrics.Recovered.WithLabelValues(w.Name, "unknown").Inc()
	w.Metrics.Calls.Count(out.Name())
	f.Charge()
	at := f.Lost.Stored
	if f.Flown != nil && !f.Flown.Begun.IsZero() {
		at = f.Flown.Begun
	}
	c := settle.Record(f.Job, httpcall.Response{Sent: true, Started: at, Ended: at}, out)
	c.Planned = time.Time{}
	f.AsIntended(c)
	f.waitOut(c)
	return c
}

// waitOut raises the TAT in a record as if the call had just used the key's whole burst, unless the call's pace was
// noted. A process that starts later takes the key's pace from this record.
func (f *foundJob) waitOut(c *ledger.Record) {
	w := f.w
	if w.Clock != schedule.OwnClock || f.Flown != nil && f.Flown.State != recorder.Untold {
		return
	}
	w.Mu.Lock()
	waits := w.Now().Add(w.Sched.Policy().DrainTime(f.Queue.Limits))
	w.Mu.Unlock()
	c.TAT = max(c.TAT, waits+w.Env.Ahead())
}
