package config

import "time"

// Breaker says when all calls of an api stop because they fail.
type Breaker struct {
	Failures int           // failures in a row that open it: 1 to 1000; 0 for never
	Min, Max time.Duration // of the time it stays open: 1ms to 24h
}

func readBreaker(f fields, r Retry) Breaker {
	b := Breaker{Failures: 5, Min: r.Min, Max: r.Max}
	v, ok := f.byName["breaker"]
	if !ok {
		return b
	}
	before := len(v.doc.problems)
	breaker, _ := v.fields("failures", "min", "max")
	b.Failures = int(read(breaker, "failures", int64(b.Failures), wholeIn(0, 1000)))
	open := durationIn(time.Millisecond, day)
	b.Min = read(breaker, "min", b.Min, open)
	b.Max = read(breaker, "max", max(b.Max, b.Min), open)
	if len(v.doc.problems) == before && b.Min > b.Max {
		breaker.place("min").fail("min "+FormatDuration(b.Min)+" is above max "+FormatDuration(b.Max), "raise max or lower min")
	}
	return b
}
