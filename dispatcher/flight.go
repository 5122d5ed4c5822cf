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

// notedOf is what the process that wrote an intent noted of its call. An answer that cannot be understood is none.
func (w *apiWorker) notedOf(j *job, i *foundIntent) recorder.Found {
	if i.Accepted == 0 || i.Epoch == 0 || j.part.isRestored(j.Seq) { // what was put back was called since, perhaps by another intent
		return recorder.Found{}
	}
	f := w.d.opts.Recorder.Find(i.Entry, j.part.callOf(&i.Intent, i.Epoch))
	if f.Answer != nil && int(f.Answer.Verdict) >= len(verdicts) {
		f.State, f.Answer = recorder.Left, nil
	}
	return f
}

// takeBackLocked lets a job go on whose intended call had not begun, as if there were no intent.
func (w *apiWorker) takeBackLocked(ctx context.Context, j *job, i *foundIntent) {
	w.d.metrics.recovered.WithLabelValues(w.name, "not_begun").Inc()
	j.adopted = w.d.opts.Recorder.Adopt(i.Entry, j.part.callOf(&i.Intent, i.Epoch)) // other jobs may need the intent's message yet
	if w.d.tail.Knows(w.name, i.stored.Add(-w.d.opts.Tail.OrDefault().Leeway)) {
		w.dropIntentsLocked(j)
		return
	}
	j.Unseen = j.First() // who comes behind it waits
	j.intendedAt = i.stored
	j.Settle()
	w.running.Go(func() {
		if !w.reload(ctx, j) || !w.lookUp(ctx, j) {
			return
		}
		w.update(func(*schedule.Schedule) {
			j.Unseen = false
			w.dropIntentsLocked(j)
			w.restLocked(j, 1)
		})
	})
}

// settleAnswered ends a job's last call as the process would have that made it, and died before it had stored what the call came to.
// Everything that is stored has the ids that it would have had then: what was stored already is not stored twice.
func (w *apiWorker) settleAnswered(ctx context.Context, j *job) {
	fault.Pass(fault.AnswerFound)
	if !w.reload(ctx, j) || !w.lookUp(ctx, j) {
		return
	}
	w.d.metrics.recovered.WithLabelValues(w.name, "answered").Inc()
	a := j.flown.Answer
	r := responseOf(a)
	out := httpcall.Outcome{
		Verdict: verdicts[a.Verdict], Reason: deadletter.Reason(a.Reason), Detail: a.Detail, Billed: deadletter.Billed(a.Billed), Fault: a.Fault,
		After: a.After, Hold: schedule.Advice{Wait: a.HoldWait, Header: a.HoldHeader, Spent: a.HoldSpent}, Mend: a.Mend,
	}
	if c := contained(func() { j.taken, _ = j.terms.costs(j.message) }); c != nil {
		j.taken = nil // nobody knows its costs
	}
	if a.Limits == j.terms.limits {
		j.taken = a.Taken
		for i := range min(len(j.terms.api.Rules.Shared), 64) {
			if a.Unsettled&(1<<i) != 0 {
				j.unsettled = append(j.unsettled, j.terms.api.Rules.Shared[i].Name)
			}
		}
	}
	j.answered(r)
	w.conclude(ctx, j, r, out)
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
		return j.lost.price(j.terms.api)
	}
	return j.terms.api.Price
}

// isKept reports whether a result stands where it was stored. An owner in between may have barred it, and have ended before it wrote
// down that the job is unknown: then that is done.
func (w *apiWorker) isKept(ctx context.Context, j *job, r httpcall.Response, at uint64) bool {
	stands, ok := w.fenced(ctx, j, at)
	if !ok || stands != 0 {
		return ok
	}
	out := httpcall.Unknown(deadletter.BilledYes, "the api answered %d, and another replica had barred the result before it ended", r.Status)
	w.bury(ctx, j, out.Reason, out.Detail, w.record(j, r, out))
	return false
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
