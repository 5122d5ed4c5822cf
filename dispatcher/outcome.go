package dispatcher

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"weir/deadletter"
)

// verdict is what is to be done with a job after a call.
type verdict int

const (
	delivered verdict = iota // done: keep the result
	retry                    // call it again later; this one counts
	pushback                 // the api said "not now": hold, and call it again; this one does not count
	dead                     // bury it
)

// outcome is the whole judgement of one call.
type outcome struct {
	verdict verdict
	reason  deadletter.Reason // when dead
	detail  string
	billed  deadletter.Billed
	fault   bool          // the api did not answer, or with a fault of its own
	after   time.Duration // before the job's next call at least, because the api asks for it
	hold    advice        // what the api says of all calls to come
}

// name is the outcome as the ledger and the metrics have it: a closed set.
func (o outcome) name() string {
	switch o.verdict {
	case delivered:
		return "done"
	case retry:
		return "retry"
	case pushback:
		return PushedBack
	}
	return string(o.reason)
}

// judge says what a response means, for its job and for the calls to come.
func judge(api *API, r response, now time.Time) outcome {
	out := classify(api, r)
	switch {
	case out.verdict == pushback:
		out.hold = askedToWait(r.header, now)
	case api.Retry.Obey:
		out.hold = usedUp(r.header, now)
	}
	if out.verdict == retry {
		out.after = askedToWait(r.header, now).wait
	}
	out.fault = out.verdict != pushback && (r.status == 0 || r.status >= 500 || r.cut) && !errors.Is(r.err, errNoRequest)
	return out
}

// classify says what is to become of the job. An api that is not idempotent is called again only when the call is known
// not to have been processed.
func classify(api *API, r response) outcome {
	idempotent := api.Idempotency != nil
	switch {
	case !r.sent:
		return outcome{verdict: retry, billed: deadletter.NotBilled, detail: fmt.Sprintf("nothing was sent: %v", r.err)}
	case r.status == 0 && idempotent:
		return outcome{verdict: retry, billed: deadletter.BilledUnknown, detail: fmt.Sprintf("no answer: %v", r.err)}
	case r.status == 0:
		return unknown(deadletter.BilledUnknown, "sent, but no answer: %v", r.err)
	case slices.Contains(api.Retry.On, r.status) || r.status == 429 || r.status == 503:
		return outcome{verdict: pushback, billed: deadletter.NotBilled, detail: fmt.Sprintf("the api pushed back with %d", r.status)}
	case r.status < 400 && !r.cut:
		return outcome{verdict: delivered, billed: deadletter.BilledYes}
	case r.status < 400 && idempotent:
		return outcome{verdict: retry, billed: deadletter.BilledYes, detail: fmt.Sprintf("status %d, but %v", r.status, r.err)}
	case r.status < 400:
		return unknown(deadletter.BilledYes, "status %d, but its answer is lost: %v", r.status, r.err)
	case r.status < 500:
		return outcome{
			verdict: dead, reason: deadletter.Rejected, billed: deadletter.NotBilled,
			detail: fmt.Sprintf("the api answered %d", r.status),
		}
	case idempotent:
		return outcome{verdict: retry, billed: deadletter.BilledUnknown, detail: fmt.Sprintf("the api answered %d", r.status)}
	}
	return unknown(deadletter.BilledUnknown, "the api answered %d, which does not say whether it was processed", r.status)
}

func unknown(billed deadletter.Billed, format string, args ...any) outcome {
	return outcome{verdict: dead, reason: deadletter.Unknown, billed: billed, detail: fmt.Sprintf(format, args...)}
}
