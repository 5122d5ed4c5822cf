package settle

import (
	"net/url"
	"strconv"
	"time"

	"weir/deadletter"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/trace"
)

// A job's spans are written from data that is stored anyway. The span of a call comes from the ledger's record, and the
// span of the job from its result or letter. So recovery also writes the spans of calls that a crash interrupted.
// Without a Tracer, this costs no more than a comparison.

// Trace returns the trace of a job whose message is loaded. It returns nil if no spans are written.
func (w *Settler) Trace(j *lane.Job) *trace.Job {
	if w.Env.Tracer == nil || j.Message == nil {
		return nil
	}
	if j.Traced == nil {
		at := trace.Place{Stream: j.Part.Bucket.Name(), Seq: j.Seq}
		if j.Accepted != 0 {
			at.Accepted = j.Accepted.Time()
		}
		j.Traced = w.Env.Tracer.Job(j.Message, at)
	}
	return j.Traced
}

// traceCall writes the span of a call whose record is stored, and the span of the wait before the call.
func (w *Settler) traceCall(j *lane.Job, c *ledger.Record) {
	t := w.Trace(j)
	if !t.Recorded() {
		return
	}
	t.Wait(j.WaitedSince(), c.Started, c.Call)
	if c.Outcome == ledger.Reused {
		j.Settled = c.Ended
		return
	}
	place := j.Terms.API.URL
	t.Call(trace.Call{
		Number: c.Call, Attempt: c.Attempt, Method: j.Message.Method, Scheme: place.Scheme, Host: place.Hostname(), Port: portOf(place),
		Started: c.Started, Ended: c.Ended, Sent: c.Sent, Status: c.Status, Outcome: c.Outcome, Detail: c.Detail, Failed: c.Outcome != ledger.Done,
	})
	j.Settled = c.Ended
}

// traceRest writes the span of storing a call's outcome. It is called if the job waits for another call, or is polled.
func (w *Settler) traceRest(j *lane.Job, c *ledger.Record) {
	if w.Env.Tracer == nil {
		return
	}
	j.Traced.Settle(j.Settled, time.Now(), c.Call, c.Outcome)
	j.Traced, j.Settled = nil, time.Time{}
}

// TraceEnd writes the job's own span. The job has ended with letter, or with a result if letter is nil.
func (w *Settler) TraceEnd(j *lane.Job, letter *deadletter.Letter) {
	t := w.Trace(j)
	if !t.Recorded() {
		return
	}
	end := trace.End{Outcome: ledger.Done, Calls: j.Calls, Attempts: j.Attempts}
	if letter != nil {
		end.Outcome, end.Detail, end.Billed, end.Failed = string(letter.Reason), letter.Detail, string(letter.Billed), true
		if j.Settled.IsZero() { // it ends without another call
			t.Wait(j.WaitedSince(), letter.At, j.Calls+1)
			j.Settled = letter.At
		}
	}
	t.Settle(j.Settled, time.Now(), j.Calls, end.Outcome)
	t.End(end)
}

// portOf returns the port of an api's url. If the url has none, it returns the port of the scheme.
func portOf(u *url.URL) int {
	if n, err := strconv.Atoi(u.Port()); err == nil {
		return n
	}
	if u.Scheme == "https" {
		return 443
	}
	return 80
}
