package httpcall

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
)

// Verdict is what the dispatcher must do with a job after a call.
type Verdict int

// The verdicts.
const (
	Delivered Verdict = iota // the job is done: keep the result
	Again                    // call the job again later; this call counts
	Pushback                 // the api said "not now": hold, and call the job again; this call does not count
	Dead                     // bury the job
	Denied                   // weir has no access: hold the api, and call the job again; this call does not count
	Submitted                // the api has begun an operation: poll the operation
)

// Outcome is the whole judgement of one call.
type Outcome struct {
	Verdict Verdict
	Reason  deadletter.Reason // set if the verdict is Dead
	Detail  string
	Billed  deadletter.Billed
	Fault   bool            // the api did not answer, or answered with a fault of its own
	After   time.Duration   // least wait that the api asks for before the job's next call
	Hold    schedule.Advice // what the api says about all later calls
	Mend    string          // what an operator must do, if denied
	// Operation is the operation that the api has begun. It is set if the verdict is Submitted. It is also set if the
	// verdict is Dead because weir must not poll the operation at its address. Accept sets it.
	Operation *queue.Operation
}

// Name returns the outcome's name in the ledger and the metrics: a closed set.
func (o Outcome) Name() string {
	switch o.Verdict {
	case Delivered:
		return "done"
	case Again:
		return "retry"
	case Pushback:
		return ledger.PushedBack
	case Denied:
		return DeniedCall
	case Submitted:
		return ledger.Submitted
	}
	return string(o.Reason)
}

// Counts reports whether the call is one of its job's attempts.
func (o Outcome) Counts() bool { return o.Verdict != Pushback && o.Verdict != Denied }

// Judge returns what a response means for its job and for later calls.
func Judge(api *API, r Response, now time.Time) Outcome {
	out := classify(api, r)
	switch {
	case out.Verdict == Pushback:
		out.Hold = askedToWait(r.Header, now)
	case out.Verdict == Denied:
		if out.Hold = toldToWait(r.Header, now); out.Hold.Wait > 0 {
			out.Detail += ", or it is called too often: its header " + out.Hold.Header + " asks weir to wait"
		}
	case api.Retry.Obey:
		out.Hold = usedUp(r.Header, now)
	}
	if out.Verdict == Again {
		out.After = askedToWait(r.Header, now).Wait
	}
	out.Fault = out.Counts() && (r.Status == 0 || r.Status >= 500 || r.Cut) && !errors.Is(r.Err, errNoRequest)
	return out
}

// classify decides what becomes of the job. If the api is not idempotent, the job is called again only if it is certain
// that the call was not processed.
func classify(api *API, r Response) Outcome {
	idempotent := api.Idempotency != nil
	switch {
	case errors.Is(r.Err, errNoHeaders):
		return unreadable(api, r)
	case !r.Sent:
		return Outcome{Verdict: Again, Billed: deadletter.NotBilled, Detail: fmt.Sprintf("nothing was sent: %v", r.Err)}
	case r.Status == 0 && idempotent:
		return Outcome{Verdict: Again, Billed: deadletter.BilledUnknown, Detail: fmt.Sprintf("no answer: %v", r.Err)}
	case r.Status == 0:
		return Unknown(deadletter.BilledUnknown, "sent, but no answer: %v", r.Err)
	case slices.Contains(api.Retry.On, r.Status) || r.Status == 429 || r.Status == 503:
		return Outcome{Verdict: Pushback, Billed: deadletter.NotBilled, Detail: fmt.Sprintf("the api pushed back with %d", r.Status)}
	case api.Retry.rejects(r.Status):
		return rejection(r)
	case denies(r.Status):
		return denial(api, r)
	case api.accepts(r.Status):
		return Outcome{Verdict: Submitted, Billed: deadletter.BilledYes, Detail: fmt.Sprintf("the api accepted it with %d", r.Status)}
	case r.Status < 400 && !r.Cut:
		return Outcome{Verdict: Delivered, Billed: deadletter.BilledYes}
	case r.Status < 400 && idempotent:
		return Outcome{Verdict: Again, Billed: deadletter.BilledYes, Detail: fmt.Sprintf("status %d, but %v", r.Status, r.Err)}
	case r.Status < 400:
		return Unknown(deadletter.BilledYes, "status %d, but its answer is lost: %v", r.Status, r.Err)
	case r.Status < 500 && !gaveUpWaiting(r.Status):
		return rejection(r)
	case idempotent:
		return Outcome{Verdict: Again, Billed: deadletter.BilledUnknown, Detail: fmt.Sprintf("the api answered %d", r.Status)}
	}
	return Unknown(deadletter.BilledUnknown, "the api answered %d, which does not say whether it was processed", r.Status)
}

// gaveUpWaiting reports whether a gateway may have answered in place of the api: the gateway waited too long for the
// request, or its client left. The api may already have received the request.
func gaveUpWaiting(status int) bool { return status == http.StatusRequestTimeout || status == 499 }

func rejection(r Response) Outcome {
	return Outcome{
		Verdict: Dead, Reason: deadletter.Rejected, Billed: deadletter.NotBilled, Detail: fmt.Sprintf("the api answered %d", r.Status),
	}
}

// Unknown returns the outcome of a call that may have been processed, for a job that must not be called again.
func Unknown(billed deadletter.Billed, format string, args ...any) Outcome {
	return Outcome{Verdict: Dead, Reason: deadletter.Unknown, Billed: billed, Detail: fmt.Sprintf(format, args...)}
}
