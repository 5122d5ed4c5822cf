package config

import "time"

// Breaker says when all calls of an api stop because they fail.
type Breaker struct {
	Failures int           // failures in a row that open it: 1 to 1000; 0 for never
	Min, Max time.Duration // of the time it stays open: 1ms to 24h
}

// section has the fields of the breaker. It stays open as long as a retry waits unless the file says otherwise.
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
				means: "the longest time",
			},
		},
		check: func(f fields) {
			if f.clean() && b.Min > b.Max {
				f.place("min").fail("min "+FormatDuration(b.Min)+" is above max "+FormatDuration(b.Max), "raise max or lower min")
			}
		},
	}
}
