package ingest

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// MostNotBefore is the longest time after its arrival that a job may ask to wait.
const MostNotBefore = 366 * 24 * time.Hour

// ParseNotBefore parses the value of Weir-Not-Before: an RFC 3339 time, or a duration from now that is not negative. It
// does not enforce MostNotBefore.
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

// wait parses a duration in Go's notation, or in whole days.
func wait(value string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(value, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16) // as many days as fit in a duration
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(value)
}

// checkNotBefore refuses a job that came now and asks to wait longer than MostNotBefore.
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

// NotBeforeOf returns the time before which a stored job must not be called, as its headers say, or zero if they name
// none that can be read. A duration counts from storedAt. It returns at most storedAt plus MostNotBefore, even if a
// header is damaged or forged.
func NotBeforeOf(h nats.Header, storedAt time.Time) time.Time {
	value := firstValue(h, HeaderNotBefore)
	if value == "" {
		return time.Time{}
	}
	at, err := ParseNotBefore(value, storedAt)
	if err != nil {
		return time.Time{} // the job is judged when it is loaded
	}
	if most := storedAt.Add(MostNotBefore); at.After(most) {
		return most
	}
	return at
}
