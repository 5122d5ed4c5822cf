package dispatcher

import (
	"context"
	"hash/fnv"
	"slices"
	"time"

	"weir/bucket"
	"weir/bucket/fault"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/dispatcher/recorder"
	"weir/dispatcher/schedule"
)

// What a call's way through the flight recorder is: prepared before its intent is stored, begun before its first byte, answered before
// anything is stored of its answer, and let go of when its intent is. The other half is what a start makes of it: a call that had not
// begun is as if there were no intent, and one that was answered ends as it would have.

// callOf names the call of an intent.
func (p *partition) callOf(i *queue.Intent, epoch uint64) recorder.Call {
	return recorder.Call{Queue: p.name, Seq: i.Seq, Accepted: int64(i.Accepted), Number: i.Call, Epoch: epoch, KeySum: i.KeySum}
}

// flight is one call, as the goroutines tell of it that send it.
type flight struct {
	entry recorder.Entry
	stale recorder.Entry // that says that the same call, by an earlier intent, has not begun
	tat   bucket.Micros  // the key's after it, were it sent in its slot
	since time.Time      // by when it was late already
	late  time.Duration
}

// takeOff is a call that is about to be sent.
func (j *job) takeOff(tat bucket.Micros, late time.Duration) *flight {
	return &flight{entry: j.entry, stale: j.adopted, tat: tat, since: time.Now(), late: late}
}

func (f *flight) begins() bool { return fault.Planted(fault.RecordLate) || f.begin() }

// begin notes that the call begins. It is told again where another connection is tried.
func (f *flight) begin() bool {
	now := time.Now()
	f.stale.Settle()
	return f.entry.Begin(now, int64(f.tat.Add(max(0, f.late+now.Sub(f.since)))))
}

func (f *flight) left() {
	if !fault.Planted(fault.RecordLate) {
		f.entry.Left()
	}
}

// land notes what a call came to. Of one over which weir crashed nothing is known.
func (j *job) land(f *flight, r httpcall.Response) {
	if _, crashed := r.Err.(*crash); crashed || f.entry == (recorder.Entry{}) { //nolint:errorlint // nobody wraps it
		return
	}
	if fault.Planted(fault.RecordLate) {
		f.begin()
	}
	out := j.crashed(httpcall.Judge(j.terms.api, r, time.Now()))
	a := recorder.Answer{
		Verdict: uint8(slices.Index(verdicts[:], out.Verdict)), Sent: r.Sent, Cut: r.Cut, More: r.More, Fault: out.Fault, HoldSpent: out.Hold.Spent,
		Status: r.Status, Started: r.Started, Ended: r.Ended, After: out.After, HoldWait: out.Hold.Wait,
		Billed: string(out.Billed), Reason: string(out.Reason), Detail: out.Detail, HoldHeader: out.Hold.Header, Mend: out.Mend,
		ContentType: r.Header.Get("Content-Type"), Limits: j.terms.limits, Taken: j.taken, Body: r.Body,
	}
	if out.Verdict == httpcall.Delivered {
		most := min(int64(len(a.Body)), j.terms.api.MaxResult)
		a.Body, a.More = a.Body[:most], a.More || most < int64(len(a.Body))
	}
	for i := range min(len(j.terms.api.Rules.Shared), 64) {
		if slices.Contains(j.unsettled, j.terms.api.Rules.Shared[i].Name) {
			a.Unsettled |= 1 << i
		}
	}
	f.entry.Answer(&a)
}

// verdicts are numbered so in files: a new one goes to the end.
var verdicts = [...]httpcall.Verdict{httpcall.Delivered, httpcall.Again, httpcall.Pushback, httpcall.Dead, httpcall.Denied}

// sumOfLimits tells the limits that an api's keys share from others.
func sumOfLimits(api *httpcall.API) uint64 {
	h := fnv.New64a()
	for _, name := range api.Rules.Names() {
		_, _ = h.Write([]byte(name + "\n")) // a hash never fails
	}
	return h.Sum64()
}

// outcomeOf is what an ended process took a call's answer for.
func outcomeOf(a *recorder.Answer) httpcall.Outcome {
	return httpcall.Outcome{
		Verdict: verdicts[a.Verdict], Reason: deadletter.Reason(a.Reason), Detail: a.Detail, Billed: deadletter.Billed(a.Billed), Fault: a.Fault,
		After: a.After, Hold: schedule.Advice{Wait: a.HoldWait, Header: a.HoldHeader, Spent: a.HoldSpent}, Mend: a.Mend,
	}
}

// chargeAgain has a call of an ended process be charged what that noted: where the shared limits are others by now, what it was reckoned to
// cost.
func (j *job) chargeAgain(a *recorder.Answer) {
	j.charge()
	if a.Limits != j.terms.limits {
		return
	}
	j.taken = a.Taken
	for i := range min(len(j.terms.api.Rules.Shared), 64) {
		if a.Unsettled&(1<<i) != 0 {
			j.unsettled = append(j.unsettled, j.terms.api.Rules.Shared[i].Name)
		}
	}
}

// charge has a call of an ended process be charged what its job is reckoned to cost.
func (j *job) charge() {
	if c := contained(func() { j.taken, _ = j.terms.costs(j.message) }); c != nil {
		j.taken = nil // nobody knows its costs
	}
}

// responseOf is what an ended process noted of a call as the call itself would have it.
func responseOf(a *recorder.Answer) httpcall.Response {
	r := httpcall.Response{
		Sent: a.Sent, Status: a.Status, Body: a.Body, More: a.More, Cut: a.Cut, Started: a.Started, Ended: a.Ended, Header: map[string][]string{},
	}
	if a.ContentType != "" {
		r.Header.Set("Content-Type", a.ContentType)
	}
	return r
}

// asFlown has the record of a call that another process made say what that one noted.
func (j *job) asFlown(c *ledger.Record) {
	costs := c.Costs
	c.Planned = time.Time{}
	j.asIntended(c)
	if a := j.flown.Answer; a != nil && a.Limits == j.terms.limits {
		c.Costs = costs
	}
	c.TAT = max(c.TAT, bucket.Micros(j.flown.TAT))
}

// lastCallOf is what a letter tells of a call. Of one that another process made the connection is not known.
func (j *job) lastCallOf(r httpcall.Response) *deadletter.LastCall {
	c := httpcall.LastCallOf(j.terms.api, r)
	if c != nil && j.flown != nil {
		c.Bytes, c.Connection, c.Target = -1, "", j.lost.Target
	}
	return c
}

// calledUnder is the identity of the key that a job's last call carried, "" for none.
func (j *job) calledUnder() string {
	if j.lost != nil {
		return j.lost.Idempotency
	}
	return j.terms.api.KeyIdentity()
}

// price is that of a job's last call.
func (j *job) price() int64 {
	if j.lost != nil {
		return j.lost.Price
	}
	return j.terms.api.Price
}

// When what ended processes left is of no use any more.
const (
	retireCheck = 250 * time.Millisecond
	retireOther = time.Hour // beside other replicas, which may take what they called, and queues of APIs that may come back
	orphanCheck = 5 * time.Second
)

// retireRecorders lets go of what ended processes noted, when all of it is stored elsewhere. It blocks until ctx ends.
func (d *Dispatcher) retireRecorders(ctx context.Context) {
	tick := time.NewTicker(retireCheck)
	defer tick.Stop()
	var looked time.Time // for queues of APIs that are not configured
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		switch {
		case d.opts.Recorder.Former() == 0:
		case d.owner != nil:
			d.opts.Recorder.Retire(retireOther)
		case d.allRecovered() && time.Since(looked) > orphanCheck: // and what had not begun is adopted
			looked = time.Now()
			if d.hasOrphans(ctx) {
				d.opts.Recorder.Retire(retireOther)
			} else {
				d.opts.Recorder.Retire(0)
			}
		}
	}
}

// allRecovered reports whether every call that was under way at a death has its record.
func (d *Dispatcher) allRecovered() bool {
	for _, w := range d.workersNow() {
		if _, ok := d.Recovered(w.name); !ok {
			return false
		}
	}
	return true
}

// hasOrphans reports whether there are queues of APIs that are not configured now, or nobody knows: intents may stand in them.
func (d *Dispatcher) hasOrphans(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, orphanCheck)
	defer cancel()
	worked := map[string]bool{}
	for _, w := range d.workersNow() {
		worked[w.name] = true
	}
	names := d.opts.JetStream.StreamNames(ctx)
	orphan := false
	for name := range names.Name() {
		api, ok := queue.APIOf(name)
		orphan = orphan || ok && !worked[api]
	}
	return orphan || names.Err() != nil
}
