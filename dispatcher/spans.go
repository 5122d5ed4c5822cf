package dispatcher

import (
	"net/url"
	"strconv"
	"time"

	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/dispatcher/trace"
	"weir/ingest"
)

// A job's spans are written from what is stored of it anyway: the span of a call from the ledger's record, whoever made the call; that of
// the job with its result or letter. So a call that a crash left is told as well, by who finds it. Without a Tracer nothing of this costs
// more than a comparison.

// trace is the trace of a job whose message is loaded; nil where no spans are written.
func (w *apiWorker) trace(j *job) *trace.Job {
	if w.d.opts.Tracer == nil || j.message == nil {
		return nil
	}
	if j.traced == nil {
		at := trace.Place{Stream: j.part.bucket.Name(), Seq: j.Seq}
		if j.accepted != 0 {
			at.Accepted = j.accepted.Time()
		}
		j.traced = w.d.opts.Tracer.Job(j.message, at)
	}
	return j.traced
}

// outgoing is the job as its api gets it: with the call as the parent of what the api does, where the trace is recorded.
func (w *apiWorker) outgoing(j *job) *ingest.Job {
	t := w.trace(j)
	if !t.Recorded() {
		return j.message
	}
	return j.message.Outgoing(j.terms.api.Rule, t.Outgoing(j.Calls))
}

// traceCall writes the spans of a call that the ledger has, and of the wait before it.
func (w *apiWorker) traceCall(j *job, c *ledger.Record) {
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

// waitedSince is when a job's last waiting began; zero where nobody knows, after a restart.
func (j *job) waitedSince() time.Time {
	switch {
	case j.rested != 0:
		return j.rested.Time()
	case j.Calls > 1, j.accepted == 0:
		return time.Time{}
	}
	return j.accepted.Time()
}

// traceRest writes that what became of a call is stored, and that the job waits for another one.
func (w *apiWorker) traceRest(j *job, c *ledger.Record) {
	if w.d.opts.Tracer == nil {
		return
	}
	j.traced.Settle(j.settled, time.Now(), c.Call, c.Outcome)
	j.traced, j.settled = nil, time.Time{}
}

// traceEnd writes the job's own span: it has a letter, or a result where that is nil.
func (w *apiWorker) traceEnd(j *job, letter *deadletter.Letter) {
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

// portOf is the port of an api, also where its url leaves it to the scheme.
func portOf(u *url.URL) int {
	if n, err := strconv.Atoi(u.Port()); err == nil {
		return n
	}
	if u.Scheme == "https" {
		return 443
	}
	return 80
}
