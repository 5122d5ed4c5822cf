package httpcall

import (
	"iter"
	"net/url"
	"time"

	"weir/bucket"
	"weir/dispatcher/reuse"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// API holds the settings of one configured api that the dispatcher needs. It is immutable.
type API struct {
	Name        string
	URL         *url.URL                             // scheme, host and base path; a job only adds a path below it
	Headers     func() ([]ingest.HeaderField, error) // resolved for every call, so that secrets may rotate
	Timeout     time.Duration
	IdleTimeout time.Duration // longest time without a byte of the answer; 0: only Timeout bounds it
	Price       int64         // the price of a usual call, in millionths
	Prices      ingest.Cost   // the terms of a call's price, in millionths; nil: Price
	Usage       []UsageCounter
	Idempotency *Idempotency
	Rule        *ingest.Rule
	Rules       bucket.Rules
	Credentials []string        // names of the headers that carry a secret
	Secrets     func() []string // their values, which are removed from kept answers; nil for none
	Retry       Retry
	Breaker     schedule.BreakerPolicy
	Inquiry     *Inquiry    // nil: weir cannot ask the api about a call
	Operation   *Operation  // nil: the api answers a call when it has done the work
	Trust       Trust       // how an https api is trusted
	MaxResult   int64       // bytes kept of an answer's body
	Reuse       *reuse.Rule // nil: every job is called
	Pack        *Pack       // nil: each call has one job
}

// Room returns how many bytes of an answer are held in memory for one job at most.
func (a *API) Room() int64 {
	if a.Pack == nil {
		return a.MaxResult
	}
	return max(a.MaxResult, leastPart)
}

// UsageCounter names a number in the api's answers that is counted for reports.
type UsageCounter struct {
	Name string
	From ingest.Source
}

// UsageOf returns the numbers that an answer has for the usage counters, by counter; nil if it has none.
func (a *API) UsageOf(r Response) (usage map[string]int64) {
	for _, u := range a.Usage {
		if n, ok := r.Number(u.From); ok {
			if usage == nil {
				usage = make(map[string]int64, len(a.Usage))
			}
			usage[u.Name] = n
		}
	}
	return usage
}

// Costs yields the api's price, and then the cost of each shared limit.
func (a *API) Costs() iter.Seq[ingest.Cost] {
	return func(yield func(ingest.Cost) bool) {
		if !yield(a.PriceTerms()) {
			return
		}
		for i := range a.Rules.Shared {
			if !yield(a.Rules.Shared[i].Cost) {
				return
			}
		}
	}
}

// PriceTerms returns the terms of a call's price, in millionths.
func (a *API) PriceTerms() ingest.Cost {
	if a.Prices == nil {
		return ingest.Units(a.Price)
	}
	return a.Prices
}

// Idempotency says how calls carry their idempotency keys. An api that has Idempotency processes a job once, however
// often weir sends the job.
type Idempotency struct {
	Header string
	Quoted bool          // as a structured-field string
	For    time.Duration // how long the api remembers a key; 0: always
}

// Retry holds the rules for jobs whose call failed.
type Retry struct {
	Attempts int           // most calls that count, including the first
	Min, Max time.Duration // of the backoff
	On       []int         // statuses that mean "not processed"
	Reject   []int         // statuses about the job, although they are usually about weir's access
	HoldAPI  bool          // pushback holds the api, not only the key
	// HoldAccount says that pushback holds all apis of the account.
	HoldAccount bool
	Obey        bool               // weir holds, as after a pushback, if headers say that no call is left
	Adaptive    *schedule.Adaptive // nil: pushback does not lower the rate
}
