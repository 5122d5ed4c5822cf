package config

import (
	"slices"
	"time"

	"weir/bucket"
)

// Scope says what a pushback stops.
type Scope string

const (
	// HoldAPI stops every key of the api: its pushback concerns a limit that they share.
	HoldAPI Scope = "api"
	// HoldKey stops only the key whose call was pushed back.
	HoldKey Scope = "key"
)

// Retry says what happens to a job whose call failed.
type Retry struct {
	Attempts int           // calls that count against the job: 1 to 1000
	Min, Max time.Duration // of the backoff: 1ms to 24h
	On       []int         // statuses that mean "not processed": 400 to 599
	Reject   []int         // statuses that concern the job, though they usually concern weir: 300 to 499
	Hold     Scope
	Headers  Obedience
	Adaptive *Adaptive // nil: the rate does not follow pushback

	holdSet bool // the file says what a pushback stops
}

// readReject reads the statuses that end their job with a letter. None of them may also mean that the call is repeated.
func readReject(retry fields, on []int) []int {
	return readList(retry, "reject", 200, func(text string) (int, error) {
		n, err := wholeIn(300, 499)(text)
		status := int(n)
		switch {
		case err != nil:
			return 0, refuse("write a status from 300 to 499, such as 403", "%s cannot mean that the api refused the job", quote(text))
		case status == 303 || status == 304:
			return 0, refuse("remove it", "%d means that the job is done", status)
		case status == 429:
			return 0, refuse("remove it", "429 means that the api is called too often, whatever the job")
		case slices.Contains(on, status):
			return 0, refuse("remove it from one of them", "%d stands under on too, where it means that the job was not processed", status)
		}
		return status, nil
	})
}

// Obedience says how an answer's RateLimit headers are used, in all their spellings.
type Obedience string

const (
	// ObeyHeaders stops calls until the time in an answer whose headers say that nothing is left.
	ObeyHeaders Obedience = "obey"
	// IgnoreHeaders uses only what a pushback says.
	IgnoreHeaders Obedience = "ignore"
)

// Adaptive says how the rate follows pushback: each halves it, and it grows back by the clock.
type Adaptive struct {
	Floor   int64         // percent of the configured rate that stay at least: 1 to 99
	Recover time.Duration // from nothing back to the configured rate: 1s to 24h
}

func readAdaptive(f fields) *Adaptive {
	v, ok := f.byName["adaptive"]
	if !ok {
		return nil
	}
	adaptive, _ := v.fields("floor", "recover")
	return &Adaptive{
		Floor: read(adaptive, "floor", 10, func(text string) (int64, error) {
			percent, err := percentIn(99)(text)
			if err == nil && percent == 0 {
				return 0, refuse("write 1% to 99%", "a floor of nothing would stop all calls for good")
			}
			return percent, err
		}),
		Recover: read(adaptive, "recover", time.Minute, durationIn(time.Second, day)),
	}
}

// Notes returns what a reader of the file should know although it is neither wrong nor doubtful: for each API whose
// keys share a limit, the effect of one 429, unless the file states it.
func (c *Config) Notes() (notes []Problem) {
	for i := range c.APIs {
		a := &c.APIs[i]
		if a.Retry.Hold == HoldAPI && !a.Retry.holdSet {
			notes = append(notes, Problem{
				Line: a.line, Path: "apis." + a.Name + ".retry.hold", Message: "one 429 to a call of one key holds all keys of the api, as they share a limit",
				Fix: "write retry: {hold: api} to keep that, or {hold: key} if the api also answers 429 about one key alone, such as one phone number",
			})
		}
	}
	return notes
}

// readRetry reads it. The default of what a pushback stops depends on what keys share.
func readRetry(f fields, rules bucket.Rules) Retry {
	r := Retry{Attempts: 5, Min: time.Second, Max: 5 * time.Minute, On: []int{429, 503}, Hold: HoldKey, Headers: ObeyHeaders}
	v, ok := f.byName["retry"]
	if len(rules.Shared) > 0 {
		r.Hold = HoldAPI
	}
	if !ok {
		return r
	}
	before := len(v.doc.problems)
	retry, _ := v.fields("attempts", "min", "max", "on", "reject", "hold", "headers", "adaptive")
	r.Attempts = int(read(retry, "attempts", int64(r.Attempts), wholeIn(1, 1000)))
	backoff := durationIn(time.Millisecond, day)
	r.Min = read(retry, "min", r.Min, backoff)
	r.Max = read(retry, "max", r.Max, backoff)
	if len(v.doc.problems) == before && r.Min > r.Max {
		retry.place("min").fail("min "+FormatDuration(r.Min)+" is above max "+FormatDuration(r.Max), "raise max or lower min")
	}
	if retry.has("on") {
		r.On = readList(retry, "on", 200, func(text string) (int, error) {
			status, err := wholeIn(400, 599)(text)
			if err != nil {
				return 0, refuse("write a status from 400 to 599", "%s cannot mean that a call was not processed", quote(text))
			}
			return int(status), nil
		})
	}
	if retry.has("reject") {
		r.Reject = readReject(retry, r.On)
	}
	r.holdSet = retry.has("hold")
	r.Hold = read(retry, "hold", r.Hold, oneOf(HoldAPI, HoldKey))
	r.Headers = read(retry, "headers", r.Headers, oneOf(ObeyHeaders, IgnoreHeaders))
	r.Adaptive = readAdaptive(retry)
	return r
}
