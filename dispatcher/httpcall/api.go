package httpcall

import (
	"net/url"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// API is what the dispatcher must know of one configured api. It is immutable.
type API struct {
	Name        string
	URL         *url.URL                             // scheme, host and base path; a job only adds a path below it
	Headers     func() ([]ingest.HeaderField, error) // resolved for every call, so that secrets may rotate
	Timeout     time.Duration
	Price       int64 // of one call, in millionths
	Idempotency *Idempotency
	Rule        *ingest.Rule
	Rules       bucket.Rules
	Credentials []string        // names of those headers that carry a secret: what to mend when the api denies weir
	Secrets     func() []string // the values of those, which no answer is kept with; nil for none
	Retry       Retry
	Breaker     schedule.BreakerPolicy
	Inquiry     *Inquiry // nil: it cannot be asked what became of a call
	Trust       Trust    // of an https api
	MaxResult   int64    // bytes of an answer's body that are kept
}

// Idempotency says that the api calls a job once however often it is sent.
type Idempotency struct {
	Header string
	Quoted bool // as a structured-field string
}

// Retry says what becomes of a job whose call failed.
type Retry struct {
	Attempts int                // that count, the first included
	Min, Max time.Duration      // of the backoff
	On       []int              // answers that mean "not processed"
	Reject   []int              // answers that are of the job, though they usually speak of weir
	HoldAPI  bool               // pushback holds the api, not only the key
	Obey     bool               // an answer whose headers say that nothing is left holds like a pushback
	Adaptive *schedule.Adaptive // nil: pushback does not lower the rate
}
