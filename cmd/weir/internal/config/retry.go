package config

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"weir/cmd/weir/internal/config/field"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/config/problem"
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
func (a *Adaptive) section() field.Section {
	return field.Section{Fields: []field.Field{
		{
			Name: "floor", Or: "10%", Means: "the smallest share of the configured rate to which pushback lowers it",
			Is: field.One(&a.Floor, field.Percent(1, 99).But("1% to 99%", func(text string) (int64, error) {
				n, err := grammar.PercentIn(99)(text)
				if err == nil && n == 0 {
					return 0, problem.Refuse("write 1% to 99%", "a floor of nothing would stop all calls for good")
				}
				return n, err
			})),
		},
		{
			Name: "recover", Is: field.One(&a.Recover, field.Duration(time.Second, grammar.Day)), Or: "1m",
			Means: "the time in which the rate grows from zero back to the configured one",
		},
	}}
}

// Notes returns what a reader of the file should know although no setting is a mistake. For each api whose keys share a
// limit, it has the effect of one 429, unless the file states it. For each rate per day, it explains quotas.
func (c *Config) Notes() []problem.Problem { return c.notes }

// section returns the fields of what weir does with failed calls. The default of hold depends on whether keys share a
// limit.
func (r *Retry) section(of *API) field.Section {
	backoff := field.Duration(time.Millisecond, grammar.Day)
	return field.Section{
		Fields: []field.Field{
			{
				Name: "attempts", Is: field.One(&r.Attempts, field.Whole(1, 1000)), Or: "5",
				Means: "how many calls a job gets; pushback does not count",
			},
			{
				Name: "min", Is: field.One(&r.Min, backoff), Or: "1s",
				Means: "the first wait between two attempts; each wait is twice as long as the one before",
			},
			{Name: "max", Is: field.One(&r.Max, backoff), Or: "5m", Means: "the longest wait"},
			{
				Name: "on", Is: field.Many(&r.On, 200, status(400, 599, retryable)), Or: "[429, 503]",
				Means: "statuses that mean \"not processed\". 429 and 503 always do",
			},
			{
				Name: "reject", Is: field.Many(&r.Reject, 200, status(300, 499, r.rejectable)), Otherwise: "none",
				Means: "statuses of this API that concern the single job, not weir's access (401, 402, 403, 407, redirects): the " +
					"job becomes a `rejected` letter",
			},
			{
				Name:      "hold",
				Is:        field.One(&r.Hold, field.Word(HoldAccount, HoldAPI, HoldKey)),
				Otherwise: "`api` with an account or shared limits, else `key`",
				Absent: func() {
					if r.Hold = HoldKey; len(of.Rules.Shared) > 0 || of.Account != "" {
						r.Hold = HoldAPI
					}
				},
				Means: "what pushback holds: `account` holds all APIs of the account",
			},
			{
				Name: "headers", Is: field.One(&r.Headers, field.Word(ObeyHeaders, IgnoreHeaders)), Or: string(ObeyHeaders),
				Means: "whether weir holds calls when headers say that no call is left",
			},
			{
				Name: "adaptive", Is: field.Optional(&r.Adaptive, (*Adaptive).section), Otherwise: "none",
				Means: "pushback also lowers the rate. Absent: it only holds",
			},
		},
		Check: func(f field.Fields) {
			r.holdSet = f.Has("hold")
			if f.Fine("attempts", "min", "max") && r.Min > r.Max {
				f.Place("min").Fail("min "+grammar.FormatDuration(r.Min)+" is above max "+grammar.FormatDuration(r.Max),
					"raise max or lower min")
			}
			if r.Hold == HoldAccount && of.Account == "" && f.Fine("hold") {
				f.Place("hold").Fail("means nothing without an account", "write account: NAME for the api, or hold: api")
			}
		},
	}
}

// status returns the type of an HTTP status that parse accepts.
func status(least, most int64, parse func(text string) (int, error)) field.Type[int] {
	return field.Type[int]{
		Parse:  parse,
		Show:   strconv.Itoa,
		Words:  fmt.Sprintf("statuses from %d to %d", least, most),
		Schema: field.WholeSchema(least, most),
	}
}

// retryable reads a status that means that the api did not process the call.
func retryable(text string) (int, error) {
	status, err := grammar.WholeIn(400, 599)(text)
	if err != nil {
		return 0,
			problem.Refuse("write a status from 400 to 599", "%s cannot mean that a call was not processed", problem.Quote(text))
	}
	return int(status), nil
}

// rejectable reads a status that ends its job with a letter. It refuses statuses that make weir repeat the call.
func (r *Retry) rejectable(text string) (int, error) {
	n, err := grammar.WholeIn(300, 499)(text)
	status := int(n)
	switch {
	case err != nil:
		return 0,
			problem.Refuse("write a status from 300 to 499, such as 403", "%s cannot mean that the api refused the job",
				problem.Quote(text))
	case status == 303 || status == 304:
		return 0, problem.Refuse("remove it", "%d means that the job is done", status)
	case status == 429:
		return 0, problem.Refuse("remove it", "429 means that the api is called too often, whatever the job")
	case slices.Contains(r.On, status):
		return 0,
			problem.Refuse("remove it from one of them", "%d stands under on too, where it means that the job was not processed",
				status)
	}
	return status, nil
}

// Breaker says when failures stop all calls of an api.
type Breaker struct {
	Failures int           // failures in a row that open it: 1 to 1000; 0 for never
	Min, Max time.Duration // how long it stays open: 1ms to 24h
}

// section returns the fields of the breaker. By default it stays open as long as a retry waits.
func (b *Breaker) section(r *Retry) field.Section {
	open := field.Duration(time.Millisecond, grammar.Day)
	return field.Section{
		Fields: []field.Field{
			{
				Name: "failures", Is: field.One(&b.Failures, field.Whole(0, 1000)), Or: "5",
				Means: "how many failures in a row stop the whole API; 0: never",
			},
			{
				Name: "min", Is: field.One(&b.Min, open), Otherwise: "that of `retry`", Absent: func() { b.Min = r.Min },
				Means: "the first hold, before weir tries a single call; each hold is twice as long as the one before",
			},
			{
				Name:      "max",
				Is:        field.One(&b.Max, open),
				Otherwise: "that of `retry`",
				Absent:    func() { b.Max = max(r.Max, b.Min) },
				Means:     "the longest hold",
			},
		},
		Check: func(f field.Fields) {
			if f.Clean() && b.Min > b.Max {
				f.Place("min").Fail("min "+grammar.FormatDuration(b.Min)+" is above max "+grammar.FormatDuration(b.Max),
					"raise max or lower min")
			}
		},
	}
}
