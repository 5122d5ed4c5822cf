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

// Spans writes the spans of jobs. It keeps what it knows of a job's spans in the job (Traced and Settled); only the
// job's goroutine uses it.
type Spans struct{ env *lane.Env }

// Of returns the trace of a job whose message is loaded. It returns nil if no spans are written.
func (s Spans) Of(j *lane.Job) *trace.Job {
	if s.env.Tracer == nil || j.Message == nil {
		return nil
	}
	if j.Traced == nil {
		at := trace.Place{Stream: j.Part.Bucket.Name(), Seq: j.Seq}
		if j.Accepted != 0 {
			at.Accepted = j.Accepted.Time()
		}
		j.Traced = s.env.Tracer.Job(j.Message, at)
	}
	return j.Traced
}

// call writes the span of a call whose record is stored, and the span of the wait before the call.
func (s Spans) call(j *lane.Job, c *ledger.Record) {
	t := s.Of(j)
	if !t.Recorded() {
		return
	}
	t.Wait(waitedSince(j), c.Started, c.Call)
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

// rest writes the span of storing a call's outcome. It is called if the job waits for another call, or is polled.
func (s Spans) rest(j *lane.Job, c *ledger.Record) {
	if s.env.Tracer == nil {
		return
	}
	j.Traced.Settle(j.Settled, time.Now(), c.Call, c.Outcome)
	j.Traced, j.Settled = nil, time.Time{}
}

// End writes the job's own span. The job has ended with letter, or with a result if letter is nil.
func (s Spans) End(j *lane.Job, letter *deadletter.Letter) {
	t := s.Of(j)
	if !t.Recorded() {
		return
	}
	end := trace.End{Outcome: ledger.Done, Calls: j.Calls, Attempts: j.Attempts}
	if letter != nil {
		end.Outcome, end.Detail, end.Billed, end.Failed = string(letter.Reason), letter.Detail, string(letter.Billed), true
		if j.Settled.IsZero() { // it ends without another call
			t.Wait(waitedSince(j), letter.At, j.Calls+1)
			j.Settled = letter.At
		}
	}
	t.Settle(j.Settled, time.Now(), j.Calls, end.Outcome)
	t.End(end)
}

// waitedSince returns when a job's last wait began. It returns zero if that is unknown after a restart.
func waitedSince(j *lane.Job) time.Time {
	switch {
	case j.Rested != 0:
		return j.Rested.Time()
	case j.Calls > 1, j.Accepted == 0:
		return time.Time{}
	}
	return j.Accepted.Time()
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
