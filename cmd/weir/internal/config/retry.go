package config

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Scope says which calls a pushback stops.
type Scope string

const (
	// HoldAPI stops every key of the api: the pushback concerns a limit that the keys share.
	HoldAPI Scope = "api"
	// HoldAccount stops every api of the account.
	HoldAccount Scope = "account"
	// HoldKey stops only the key whose call was pushed back.
	HoldKey Scope = "key"
)

// Retry says what weir does with a job whose call failed.
type Retry struct {
	Attempts int           // attempts of a job, pushback not counted: 1 to 1000
	Min, Max time.Duration // of the backoff: 1ms to 24h
	On       []int         // statuses that mean that the api did not process the call: 400 to 599
	Reject   []int         // statuses that usually concern weir's access, but concern the single job here: 300 to 499
	Hold     Scope
	Headers  Obedience
	Adaptive *Adaptive // nil: the rate does not follow pushback

	holdSet bool // the file sets Hold
}

// Obedience says how weir uses an answer's RateLimit headers, in all their spellings.
type Obedience string

const (
	// ObeyHeaders stops calls when an answer's headers say that no call is left, until the time in these headers.
	ObeyHeaders Obedience = "obey"
	// IgnoreHeaders makes weir use the headers of a pushback only.
	IgnoreHeaders Obedience = "ignore"
)

// Adaptive says how pushback changes the rate: each pushback halves it, and it grows back evenly with time.
type Adaptive struct {
	Floor   int64         // the least rate, in percent of the configured one: 1 to 99
	Recover time.Duration // how long the rate takes to grow from zero to the configured one: 1s to 24h
}

// section returns the fields of an adaptive rate.
func (a *Adaptive) section() section {
	return section{fields: []field{
		{
			name: "floor", or: "10%", means: "the smallest share of the configured rate to which pushback lowers it",
			is: one(&a.Floor, percent(1, 99).but("1% to 99%", func(text string) (int64, error) {
				n, err := percentIn(99)(text)
				if err == nil && n == 0 {
					return 0, refuse("write 1% to 99%", "a floor of nothing would stop all calls for good")
				}
				return n, err
			})),
		},
		{
			name: "recover", is: one(&a.Recover, duration(time.Second, day)), or: "1m",
			means: "the time in which the rate grows from zero back to the configured one",
		},
	}}
}

// Notes returns what a reader of the file should know although no setting is a mistake. For each api whose keys share a
// limit, it has the effect of one 429, unless the file states it. For each rate per day, it explains quotas.
func (c *Config) Notes() []Problem { return c.notes }

// section returns the fields of what weir does with failed calls. The default of hold depends on whether keys share a
// limit.
func (r *Retry) section(of *API) section {
	backoff := duration(time.Millisecond, day)
	return section{
		fields: []field{
			{
				name: "attempts", is: one(&r.Attempts, whole(1, 1000)), or: "5",
				means: "how many calls a job gets; pushback does not count",
			},
			{
				name: "min", is: one(&r.Min, backoff), or: "1s",
				means: "the first wait between two attempts; each wait is twice as long as the one before",
			},
			{name: "max", is: one(&r.Max, backoff), or: "5m", means: "the longest wait"},
			{
				name: "on", is: many(&r.On, 200, status(400, 599, retryable)), or: "[429, 503]",
				means: "statuses that mean \"not processed\". 429 and 503 always do",
			},
			{
				name: "reject", is: many(&r.Reject, 200, status(300, 499, r.rejectable)), otherwise: "none",
				means: "statuses of this API that concern the single job, not weir's access (401, 402, 403, 407, redirects): the job " +
					"becomes a `rejected` letter",
			},
			{
				name: "hold", is: one(&r.Hold, word(HoldAccount, HoldAPI, HoldKey)), otherwise: "`api` with an account or shared limits, else `key`",
				absent: func() {
					if r.Hold = HoldKey; len(of.Rules.Shared) > 0 || of.Account != "" {
						r.Hold = HoldAPI
					}
				},
				means: "what pushback holds: `account` holds all APIs of the account",
			},
			{
				name: "headers", is: one(&r.Headers, word(ObeyHeaders, IgnoreHeaders)), or: string(ObeyHeaders),
				means: "whether weir holds calls when headers say that no call is left",
			},
			{
				name: "adaptive", is: optional(&r.Adaptive, (*Adaptive).section), otherwise: "none",
				means: "pushback also lowers the rate. Absent: it only holds",
			},
		},
		check: func(f fields) {
			r.holdSet = f.has("hold")
			if f.fine("attempts", "min", "max") && r.Min > r.Max {
				f.place("min").fail("min "+FormatDuration(r.Min)+" is above max "+FormatDuration(r.Max), "raise max or lower min")
			}
			if r.Hold == HoldAccount && of.Account == "" && f.fine("hold") {
				f.place("hold").fail("means nothing without an account", "write account: NAME for the api, or hold: api")
			}
		},
	}
}

// status returns the type of an HTTP status that parse accepts.
func status(least, most int64, parse func(text string) (int, error)) of[int] {
	return of[int]{parse, strconv.Itoa, fmt.Sprintf("statuses from %d to %d", least, most), wholeSchema(least, most)}
}

// retryable reads a status that means that the api did not process the call.
func retryable(text string) (int, error) {
	status, err := wholeIn(400, 599)(text)
	if err != nil {
		return 0, refuse("write a status from 400 to 599", "%s cannot mean that a call was not processed", quote(text))
	}
	return int(status), nil
}

// rejectable reads a status that ends its job with a letter. It refuses statuses that make weir repeat the call.
func (r *Retry) rejectable(text string) (int, error) {
	n, err := wholeIn(300, 499)(text)
	status := int(n)
	switch {
	case err != nil:
		return 0, refuse("write a status from 300 to 499, such as 403", "%s cannot mean that the api refused the job", quote(text))
	case status == 303 || status == 304:
		return 0, refuse("remove it", "%d means that the job is done", status)
	case status == 429:
		return 0, refuse("remove it", "429 means that the api is called too often, whatever the job")
	case slices.Contains(r.On, status):
		return 0, refuse("remove it from one of them", "%d stands under on too, where it means that the job was not processed", status)
	}
	return status, nil
}

// Breaker says when failures stop all calls of an api.
type Breaker struct {
	Failures int           // failures in a row that open it: 1 to 1000; 0 for never
	Min, Max time.Duration // how long it stays open: 1ms to 24h
}

// section returns the fields of the breaker. By default it stays open as long as a retry waits.
func (b *Breaker) section(r *Retry) section {
	open := duration(time.Millisecond, day)
	return section{
		fields: []field{
			{
				name: "failures", is: one(&b.Failures, whole(0, 1000)), or: "5",
				means: "how many failures in a row stop the whole API; 0: never",
			},
			{
				name: "min", is: one(&b.Min, open), otherwise: "that of `retry`", absent: func() { b.Min = r.Min },
				means: "the first hold, before weir tries a single call; each hold is twice as long as the one before",
			},
			{
				name: "max", is: one(&b.Max, open), otherwise: "that of `retry`", absent: func() { b.Max = max(r.Max, b.Min) },
				means: "the longest hold",
			},
		},
		check: func(f fields) {
			if f.clean() && b.Min > b.Max {
				f.place("min").fail("min "+FormatDuration(b.Min)+" is above max "+FormatDuration(b.Max), "raise max or lower min")
			}
		},
	}
}
