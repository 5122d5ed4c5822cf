package lane

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
// as answered before anything of its answer is stored. It drops these notes when the intent is dropped. Recovery reads
// the notes of ended processes. A call that had not begun counts as if it had no intent. A call that was answered is
// settled as its process would have settled it.

// CallOf names an intent's call for the flight recorder.
func (p *Owned) CallOf(i *queue.Intent, epoch uint64) recorder.Call {
	return recorder.Call{Queue: p.name, Seq: i.Seq, Accepted: int64(i.Accepted), Number: i.Call, Epoch: epoch, KeySum: i.KeySum}
}

// Flight notes the progress of one call. The goroutines that send the call use it.
type Flight struct {
	entry recorder.Entry
	stale recorder.Entry // entry of the same call by an earlier intent, which says that the call has not begun
	tat   bucket.Micros  // the key's TAT after the call, if it is sent in its slot
	since time.Time      // when late was measured
	late  time.Duration
}

// TakeOff returns the flight of a job's call that is about to be sent.
func TakeOff(j *Job, tat bucket.Micros, late time.Duration) *Flight {
	return &Flight{entry: j.Entry, stale: j.Adopted, tat: tat, since: time.Now(), late: late}
}

// Begins notes that the call begins, and reports whether it may.
func (f *Flight) Begins() bool { return fault.Planted(fault.RecordLate) || f.begin() }

// begin notes that the call begins, and reports whether it may. It is called once more for each further connection that
// is tried.
func (f *Flight) begin() bool {
	now := time.Now()
	f.stale.Settle()
	return f.entry.Begin(now, int64(f.tat.Add(max(0, f.late+now.Sub(f.since)))))
}

// Left notes that the request was sent.
func (f *Flight) Left() {
	if !fault.Planted(fault.RecordLate) {
		f.entry.Left()
	}
}

// Land notes the outcome of a job's call. If weir's code panicked during the call, the outcome is unknown, and Land
// notes nothing.
func (f *Flight) Land(j *Job, r httpcall.Response) { f.land(j, r, nil) }

// LandPart is Land for a job of a pack. p is the job's part of the call.
func (f *Flight) LandPart(j *Job, p *httpcall.Part) { f.land(j, p.Response, &p.Outcome) }

// land notes a response and its outcome. If judged is nil, land judges the response itself.
func (f *Flight) land(j *Job, r httpcall.Response, judged *httpcall.Outcome) {
	if _, crashed := r.Err.(*Crash); crashed || f.entry == (recorder.Entry{}) { //nolint:errorlint // it is never wrapped
		return
	}
	if fault.Planted(fault.RecordLate) {
		f.begin()
	}
	if judged == nil {
		judged = new(j.Judge(r))
	}
	out := *judged
	a := noted(r, out)
	a.Limits, a.Taken, a.Paid = j.Terms.Limits, j.Bill.Taken, j.Bill.Paid
	if out.Verdict == httpcall.Delivered {
		most := min(int64(len(a.Body)), j.Terms.API.MaxResult)
		a.Body, a.More = a.Body[:most], a.More || most < int64(len(a.Body))
	}
	for i := range min(len(j.Terms.API.Rules.Shared), 64) {
		if slices.Contains(j.Bill.Unsettled, j.Terms.API.Rules.Shared[i].Name) {
			a.Unsettled |= 1 << i
		}
	}
	f.entry.Answer(&a)
}

// noted returns the flight recorder's note of a call's answer and outcome.
func noted(r httpcall.Response, out httpcall.Outcome) recorder.Answer {
	a := recorder.Answer{
		Verdict: uint8(slices.Index(Verdicts[:], out.Verdict)), Sent: r.Sent, Cut: r.Cut, More: r.More, Fault: out.Fault, HoldSpent: out.Hold.Spent,
		Status: r.Status, Started: r.Started, Ended: r.Ended, After: out.After, HoldWait: out.Hold.Wait,
		Billed: string(out.Billed), Reason: string(out.Reason), Detail: out.Detail, HoldHeader: out.Hold.Header, Mend: out.Mend,
		ContentType: r.Header.Get("Content-Type"), Body: r.Body,
	}
	if op := out.Operation; op != nil {
		a.Operation, a.Cancel, a.Holds = op.Address, op.Cancel, op.Holds
	}
	if out.Verdict == httpcall.Submitted {
		a.Body = nil // the operation's answer is the result
	}
	return a
}

// Judge judges a call of the job by the terms under which it was made.
func (j *Job) Judge(r httpcall.Response) httpcall.Outcome {
	out := httpcall.Judge(j.Terms.API, r, time.Now())
	if out.Verdict == httpcall.Submitted {
		out = j.Terms.API.Accept(out, r, j.Message)
	}
	return j.Crashed(out)
}

// Verdicts gives the verdicts the numbers that files use. New verdicts must be appended.
var Verdicts = [...]httpcall.Verdict{httpcall.Delivered, httpcall.Again, httpcall.Pushback, httpcall.Dead, httpcall.Denied, httpcall.Submitted}

// sumOfLimits returns a hash of the names of the limits that an api's keys share. It identifies this set of limits.
func sumOfLimits(api *httpcall.API) uint64 {
	h := fnv.New64a()
	for _, name := range api.Rules.Names() {
		_, _ = h.Write([]byte(name + "\n")) // a hash never fails
	}
	return h.Sum64()
}

// OutcomeOf returns the outcome that an ended process judged from a call's answer.
func OutcomeOf(a *recorder.Answer) httpcall.Outcome {
	out := httpcall.Outcome{
		Verdict: Verdicts[a.Verdict], Reason: deadletter.Reason(a.Reason), Detail: a.Detail, Billed: deadletter.Billed(a.Billed), Fault: a.Fault,
		After: a.After, Hold: schedule.Advice{Wait: a.HoldWait, Header: a.HoldHeader, Spent: a.HoldSpent}, Mend: a.Mend,
	}
	if a.Operation != "" {
		out.Operation = &queue.Operation{Address: a.Operation, Cancel: a.Cancel, Started: a.Started.UTC(), Holds: a.Holds}
	}
	return out
}

// ChargeAgain charges the call of an ended process the price and the units that this process noted. If the shared
// limits have changed since, it charges the units that the call was estimated to cost.
func (j *Job) ChargeAgain(a *recorder.Answer) {
	j.Charge()
	j.Bill.Paid, j.Bill.Noted = a.Paid, true
	if a.Limits != j.Terms.Limits {
		return
	}
	j.Bill.Taken = a.Taken
	for i := range min(len(j.Terms.API.Rules.Shared), 64) {
		if a.Unsettled&(1<<i) != 0 {
			j.Bill.Unsettled = append(j.Bill.Unsettled, j.Terms.API.Rules.Shared[i].Name)
		}
	}
}

// Charge charges the call of an ended process the units and the price of the job's own estimates.
func (j *Job) Charge() {
	j.Bill.Taken, j.Bill.Paid = nil, j.Terms.API.Price // if the job's costs cannot be read
	var t Toll
	var err error
	toll := j.Terms.Toll
	if j.In.Follows() {
		toll = j.Terms.TollBehind
	}
	if c := Contained(func() { t, err = toll(j.Message) }); c == nil && err == nil {
		j.Bill.Taken, j.Bill.Paid, j.Bill.Estimates = t.Costs, t.Price, t.Costs
	}
}

// ResponseOf returns what an ended process noted of a call, as the response that the call would have returned.
func ResponseOf(a *recorder.Answer) httpcall.Response {
	r := httpcall.Response{
		Sent: a.Sent, Status: a.Status, Body: a.Body, More: a.More, Cut: a.Cut, Started: a.Started, Ended: a.Ended, Header: map[string][]string{},
	}
	if a.ContentType != "" {
		r.Header.Set("Content-Type", a.ContentType)
	}
	return r
}

// AsFlown completes the record of a call that an ended process made. It sets the key's identity and the price as
// AsIntended does. It raises the TAT to the one that the process noted in the flight recorder. It clears the planned
// time, which is unknown.
func (j *Job) AsFlown(c *ledger.Record) {
	costs := c.Costs
	c.Planned = time.Time{}
	j.AsIntended(c)
	if a := j.Flown.Answer; a != nil && a.Limits == j.Terms.Limits {
		c.Costs = costs
	}
	c.TAT = max(c.TAT, bucket.Micros(j.Flown.TAT))
}

// LastCallOf describes a call for a letter. If another process made the call, its connection is unknown.
func (j *Job) LastCallOf(r httpcall.Response) *deadletter.LastCall {
	c := httpcall.LastCallOf(j.Terms.API, r)
	if c != nil && j.Flown != nil {
		c.Bytes, c.Connection, c.Target = -1, "", j.Lost.Target
	}
	return c
}

// CalledUnder returns the identity of the key that the job's last call carried, "" if it carried none. began is when
// that call began.
func (j *Job) CalledUnder(began time.Time) string {
	if j.Lost != nil {
		return j.Lost.Idempotency
	}
	return j.Identity(began)
}

// Identity returns the identity of the key that the job's present call carries. began is when the call began.
func (j *Job) Identity(began time.Time) string {
	if j.In != nil {
		return j.Terms.API.PackIdentity(j.In.ID, began)
	}
	return j.Terms.API.CallIdentity(began)
}

// Price returns the price of a job's last call.
func (j *Job) Price() int64 {
	if j.Lost != nil && !j.Bill.Noted {
		return j.Lost.Price
	}
	return j.Bill.Paid
}

// Lose notes that a job's last call, whose intent is i, is lost unless its result is found.
func (j *Job) Lose(i *FoundIntent) {
	j.Lost, j.Deaths, j.IntendedAt = i, i.Deaths+1, i.Stored
	j.LastCall = &deadletter.LastCall{Started: i.Stored, Bytes: -1, CutBy: deadletter.CutByDeath, Target: i.Target}
}

// AsIntended copies the key's identity from a lost call's intent to the call's record. It also copies the price from
// there, unless the call's process noted one, which it copies instead. If the call was billed, the price is also what
// it takes from each budget.
func (j *Job) AsIntended(c *ledger.Record) {
	if j.Lost == nil {
		c.Idempotency = "" // unknown without an intent
		return
	}
	c.Idempotency = j.Lost.Idempotency
	j.ChargeBudgets(c, j.Price())
}

// ChargeBudgets sets the price in a call's record. If the call was billed, this is also what it takes from each budget.
func (j *Job) ChargeBudgets(c *ledger.Record, price int64) {
	c.Price, c.Costs = ledger.Money(price), slices.Clone(c.Costs)
	if c.Billed == deadletter.NotBilled {
		price = 0
	}
	for i := range min(len(c.Costs), len(j.Terms.API.Rules.Shared)) {
		if j.Terms.API.Rules.Shared[i].Budget != nil {
			c.Costs[i] = price
		}
	}
}
