package config

import "time"

// Scope says what a pushback holds.
type Scope string

const (
	// HoldAPI holds every key of the api: its pushback speaks of a limit they share.
	HoldAPI Scope = "api"
	// HoldKey holds the key whose call was pushed back.
	HoldKey Scope = "key"
)

// Retry says what becomes of a job whose call failed.
type Retry struct {
	Attempts int           // calls that count against the job: 1 to 1000
	Min, Max time.Duration // of the backoff: 1ms to 24h
	On       []int         // statuses that mean "not processed": 400 to 599
	Hold     Scope
}

func readRetry(f fields, shared bool) Retry {
	r := Retry{Attempts: 5, Min: time.Second, Max: 5 * time.Minute, On: []int{429, 503}, Hold: HoldKey}
	if shared {
		r.Hold = HoldAPI
	}
	v, ok := f.byName["retry"]
	if !ok {
		return r
	}
	before := len(v.doc.problems)
	retry, _ := v.fields("attempts", "min", "max", "on", "hold")
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
	r.Hold = read(retry, "hold", r.Hold, oneOf(HoldAPI, HoldKey))
	return r
}
