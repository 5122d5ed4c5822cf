package ingest

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// MostNotBefore is how long after its arrival a job may ask not to be called.
const MostNotBefore = 366 * 24 * time.Hour

// ParseNotBefore reads what Weir-Not-Before says: an RFC 3339 time, or a duration from now that is not negative. It does not hold it
// to MostNotBefore.
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

// wait is a duration as Go writes it, or in whole days.
func wait(value string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(value, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16) // as many days as fit a duration
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(value)
}

// checkNotBefore holds what a job that came now asks for to what weir can do.
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

// NotBeforeOf is the time before which the headers of a stored job say not to call it; zero where they say none that can be read. A
// duration counts from storedAt. It is never later than MostNotBefore after storedAt, whatever a damaged or forged header says.
func NotBeforeOf(h nats.Header, storedAt time.Time) time.Time {
	value := timeHeader(h, HeaderNotBefore)
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
