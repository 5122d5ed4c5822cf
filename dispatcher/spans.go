package dispatcher

import (
	"net/url"
	"strconv"
	"time"

	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/dispatcher/trace"
)

// A job's spans are written from data that is stored anyway: the span of a call from the ledger's record, and that of
// the job from its result or letter. So recovery also writes the spans of calls that a crash interrupted. Without a
// Tracer this costs no more than a comparison.

// trace returns the trace of a job whose message is loaded. It returns nil if no spans are written.
func (w *settler) trace(j *job) *trace.Job {
	if w.env.tracer == nil || j.message == nil {
		return nil
	}
	if j.traced == nil {
		at := trace.Place{Stream: j.part.bucket.Name(), Seq: j.Seq}
		if j.accepted != 0 {
			at.Accepted = j.accepted.Time()
		}
		j.traced = w.env.tracer.Job(j.message, at)
	}
	return j.traced
}

// traceCall writes the span of a call whose record is stored, and that of the wait before it.
func (w *settler) traceCall(j *job, c *ledger.Record) {
	t := w.trace(j)
	if !t.Recorded() {
		return
	}
	t.Wait(j.waitedSince(), c.Started, c.Call)
	place := j.terms.api.URL
	t.Call(trace.Call{
		Number: c.Call, Attempt: c.Attempt, Method: j.message.Method, Scheme: place.Scheme, Host: place.Hostname(), Port: portOf(place),
		Started: c.Started, Ended: c.Ended, Sent: c.Sent, Status: c.Status, Outcome: c.Outcome, Detail: c.Detail, Failed: c.Outcome != ledger.Done,
	})
	j.settled = c.Ended
}

// traceRest writes the span of storing a call's outcome, if the job waits for another call.
func (w *settler) traceRest(j *job, c *ledger.Record) {
	if w.env.tracer == nil {
		return
	}
	j.traced.Settle(j.settled, time.Now(), c.Call, c.Outcome)
	j.traced, j.settled = nil, time.Time{}
}

// traceEnd writes the job's own span. The job has ended with letter, or with a result if letter is nil.
func (w *settler) traceEnd(j *job, letter *deadletter.Letter) {
	t := w.trace(j)
	if !t.Recorded() {
		return
	}
	end := trace.End{Outcome: ledger.Done, Calls: j.Calls, Attempts: j.attempts}
	if letter != nil {
		end.Outcome, end.Detail, end.Billed, end.Failed = string(letter.Reason), letter.Detail, string(letter.Billed), true
		if j.settled.IsZero() { // it ends without another call
			t.Wait(j.waitedSince(), letter.At, j.Calls+1)
			j.settled = letter.At
		}
	}
	t.Settle(j.settled, time.Now(), j.Calls, end.Outcome)
	t.End(end)
}

// portOf returns the port of an api's url, or if the url has none, that of its scheme.
func portOf(u *url.URL) int {
	if n, err := strconv.Atoi(u.Port()); err == nil {
		return n
	}
	if u.Scheme == "https" {
		return 443
	}
	return 80
}
