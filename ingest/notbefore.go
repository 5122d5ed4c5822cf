package ingest

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// MostNotBefore is the longest time that a job may ask to wait after its arrival.
const MostNotBefore = 366 * 24 * time.Hour

// ParseNotBefore parses the value of Weir-Not-Before: an RFC 3339 time, or a duration of at least 0 that counts from
// now. It does not enforce MostNotBefore.
func ParseNotBefore(value string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339Nano, value); err == nil {
		return at, nil
	}
	d, err := wait(value)
	switch {
	case err != nil:
		return time.Time{}, errors.New("it is neither an RFC 3339 time nor a duration like 90s, 36h or 30d, of at most 366d")
	case d < 0:
		return time.Time{}, errors.New("it is a negative duration: leave it out for a job that may be called at once")
	}
	return now.Add(d), nil
}

// wait parses a duration in Go's notation, or in whole days as in 30d.
func wait(value string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(value, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16) // at most 65535 days: they fit in a Duration
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(value)
}

// checkNotBefore refuses a job that asks to wait longer than MostNotBefore after now, or until its deadline or later.
func (j *Job) checkNotBefore(now time.Time) *Refusal {
	switch {
	case j.NotBefore.IsZero():
	case j.NotBefore.Sub(now) > MostNotBefore:
		return refuse(Invalid, "header %s: it is more than %d days from now", HeaderNotBefore, MostNotBefore/(24*time.Hour))
	case !j.Deadline.IsZero() && !j.NotBefore.Before(j.Deadline):
		return refuse(Invalid, "header %s: it is not before the job's deadline: the job could never be called", HeaderNotBefore)
	}
	return nil
}

// NotBeforeOf returns the time before which a stored job must not be called, or zero if its headers name none that can
// be read. A duration counts from storedAt. The result is at most storedAt plus MostNotBefore, even if a header is
// damaged or forged.
func NotBeforeOf(h nats.Header, storedAt time.Time) time.Time {
	value := firstValue(h, HeaderNotBefore)
	if value == "" {
		return time.Time{}
	}
	at, err := ParseNotBefore(value, storedAt)
	if err != nil {
		return time.Time{} // the dispatcher refuses the job when it loads it
	}
	if most := storedAt.Add(MostNotBefore); at.After(most) {
		return most
	}
	return at
}
