package dispatcher

import (
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

// The flight recorder notes a call as prepared before its intent is stored, as begun before its first byte is sent, and
// as answered before anything of its answer is stored. It drops the notes when the intent is dropped. Recovery reads
// the notes of ended processes: a call that had not begun counts as if it had no intent, and a call that was answered
// is settled as its process would have.

// callOf names an intent's call for the flight recorder.
func (p *partition) callOf(i *queue.Intent, epoch uint64) recorder.Call {
	return recorder.Call{Queue: p.name, Seq: i.Seq, Accepted: int64(i.Accepted), Number: i.Call, Epoch: epoch, KeySum: i.KeySum}
}

// flight notes the progress of one call. The goroutines that send the call use it.
type flight struct {
	entry recorder.Entry
	stale recorder.Entry // of the same call by an earlier intent: says that it has not begun
	tat   bucket.Micros  // the key's TAT after the call, if it is sent in its slot
	since time.Time      // when late was measured
	late  time.Duration
}

// takeOff returns the flight of a call that is about to be sent.
func (j *job) takeOff(tat bucket.Micros, late time.Duration) *flight {
	return &flight{entry: j.entry, stale: j.adopted, tat: tat, since: time.Now(), late: late}
}

func (f *flight) begins() bool { return fault.Planted(fault.RecordLate) || f.begin() }

// begin notes that the call begins. It is called again for each further connection that is tried.
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

// land notes the outcome of a call. If weir's code panicked during the call, the outcome is unknown and land notes
// nothing.
func (j *job) land(f *flight, r httpcall.Response) {
	if _, crashed := r.Err.(*crash); crashed || f.entry == (recorder.Entry{}) { //nolint:errorlint // it is never wrapped
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

// verdicts gives the verdicts their numbers in files. Append new ones.
var verdicts = [...]httpcall.Verdict{httpcall.Delivered, httpcall.Again, httpcall.Pushback, httpcall.Dead, httpcall.Denied}

// sumOfLimits returns a hash of the names of the limits that an api's keys share, which identifies this set of limits.
func sumOfLimits(api *httpcall.API) uint64 {
	h := fnv.New64a()
	for _, name := range api.Rules.Names() {
		_, _ = h.Write([]byte(name + "\n")) // a hash never fails
	}
	return h.Sum64()
}

// outcomeOf returns the outcome that an ended process judged from a call's answer.
func outcomeOf(a *recorder.Answer) httpcall.Outcome {
	return httpcall.Outcome{
		Verdict: verdicts[a.Verdict], Reason: deadletter.Reason(a.Reason), Detail: a.Detail, Billed: deadletter.Billed(a.Billed), Fault: a.Fault,
		After: a.After, Hold: schedule.Advice{Wait: a.HoldWait, Header: a.HoldHeader, Spent: a.HoldSpent}, Mend: a.Mend,
	}
}

// chargeAgain charges an ended process's call the units that the process noted. If the shared limits have changed
// since, it charges the units that the call was estimated to cost.
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

// charge charges an ended process's call the units that its job is estimated to cost.
func (j *job) charge() {
	if c := contained(func() { j.taken, _ = j.terms.costs(j.message) }); c != nil {
		j.taken = nil // its costs are unknown
	}
}

// responseOf returns what an ended process noted of a call, as the call itself would have returned it.
func responseOf(a *recorder.Answer) httpcall.Response {
	r := httpcall.Response{
		Sent: a.Sent, Status: a.Status, Body: a.Body, More: a.More, Cut: a.Cut, Started: a.Started, Ended: a.Ended, Header: map[string][]string{},
	}
	if a.ContentType != "" {
		r.Header.Set("Content-Type", a.ContentType)
	}
	return r
}

// asFlown copies what another process noted of its call to the call's record.
func (j *job) asFlown(c *ledger.Record) {
	costs := c.Costs
	c.Planned = time.Time{}
	j.asIntended(c)
	if a := j.flown.Answer; a != nil && a.Limits == j.terms.limits {
		c.Costs = costs
	}
	c.TAT = max(c.TAT, bucket.Micros(j.flown.TAT))
}

// lastCallOf returns the description of a call for a letter. If another process made the call, its connection is
// unknown.
func (j *job) lastCallOf(r httpcall.Response) *deadletter.LastCall {
	c := httpcall.LastCallOf(j.terms.api, r)
	if c != nil && j.flown != nil {
		c.Bytes, c.Connection, c.Target = -1, "", j.lost.Target
	}
	return c
}

// calledUnder returns the identity of the key that a job's last call carried, "" for none.
func (j *job) calledUnder() string {
	if j.lost != nil {
		return j.lost.Idempotency
	}
	return j.terms.api.KeyIdentity()
}

// price returns the price of a job's last call.
func (j *job) price() int64 {
	if j.lost != nil {
		return j.lost.Price
	}
	return j.terms.api.Price
}

// lose notes that a job's last call, the one of intent i, is lost unless its result is found.
func (j *job) lose(i *foundIntent) {
	j.lost, j.Deaths, j.intendedAt = i, i.Deaths+1, i.stored
	j.lastCall = &deadletter.LastCall{Started: i.stored, Bytes: -1, CutBy: deadletter.CutByDeath, Target: i.Target}
}

// asIntended copies the price and the key's identity from a lost call's intent to the call's record. The price is also
// what the call takes from each budget.
func (j *job) asIntended(c *ledger.Record) {
	if j.lost == nil {
		c.Idempotency = "" // unknown without an intent
		return
	}
	c.Price, c.Idempotency, c.Costs = ledger.Money(j.lost.Price), j.lost.Idempotency, slices.Clone(c.Costs)
	for i := range min(len(c.Costs), len(j.terms.api.Rules.Shared)) {
		if j.terms.api.Rules.Shared[i].Budget != nil {
			c.Costs[i] = j.lost.Price
		}
	}
}
