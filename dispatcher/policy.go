package dispatcher

import (
	"time"

	"weir/bucket"
	"weir/dispatcher/httpcall"
)

// Policy is what the schedule goes by for one api. It is immutable: another configuration is another policy. A job is made ready and
// its call is judged by the same one; a job that is ready when another comes, and has no slot yet, is made ready again by that.
type Policy struct {
	Rules   bucket.Rules
	Price   int64 // of one call, in millionths
	Retry   Retry
	Breaker httpcall.Breaker
}

// Retry says what becomes of a job whose call failed, as far as it decides when a call may start.
type Retry struct {
	Attempts int                // that count, the first included
	Min, Max time.Duration      // of the backoff
	HoldAPI  bool               // pushback holds the api, not only the key
	Adaptive *httpcall.Adaptive // nil: pushback does not lower the rate
}
