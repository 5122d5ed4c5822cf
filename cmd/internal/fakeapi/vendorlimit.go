package fakeapi

import (
	"errors"
	"net/http"
	"strconv"
	"time"
)

// LimitScope says which calls a vendor limit counts together.
type LimitScope string

const (
	// EachKey has a limit of its own. It is the zero value.
	EachKey LimitScope = ""
	// AllKeys share one limit.
	AllKeys LimitScope = "all"
)

// RetryAfterForm is the form of the Retry-After header for a refused call.
type RetryAfterForm string

const (
	// Seconds are rounded up and at least 1. It is the zero value.
	Seconds RetryAfterForm = ""
	// HTTPDate is a date with a precision of one second, rounded up.
	HTTPDate RetryAfterForm = "date"
	// Absent means that the 429 comes without a Retry-After header.
	Absent RetryAfterForm = "absent"
)

// VendorLimit is the api's own limit: at most Count calls in any period of length Per, as a sliding log of the calls it let
// through. The window is half open: a call exactly Per old no longer counts. Refused calls are answered 429, are recorded as
// arrivals and do not count against the limit. The zero value is no limit.
type VendorLimit struct {
	Count int
	Per   time.Duration
	Scope LimitScope
	Form  RetryAfterForm
}

func (l VendorLimit) validate() error {
	switch {
	case l == VendorLimit{}:
		return nil
	case l.Count < 1 || l.Count > 1_000_000:
		return errors.New("Limit.Count must be from 1 to 1,000,000")
	case l.Per <= 0:
		return errors.New("Limit.Per must be above zero")
	case l.Scope != EachKey && l.Scope != AllKeys:
		return errors.New("Limit.Scope must be EachKey or AllKeys")
	case l.Form != Seconds && l.Form != HTTPDate && l.Form != Absent:
		return errors.New("Limit.Form must be Seconds, HTTPDate or Absent")
	}
	return nil
}

// retryAfter is the header's value for a wait from the given time, empty if there is to be none.
func (l VendorLimit) retryAfter(wait time.Duration, now time.Time) string {
	switch l.Form {
	case Absent:
		return ""
	case HTTPDate:
		return now.Add(wait + time.Second - 1).UTC().Format(http.TimeFormat)
	default:
		return strconv.FormatInt(max(1, int64((wait+time.Second-1)/time.Second)), 10)
	}
}

// allowance is what a limit leaves after a call.
type allowance struct {
	left   int64
	resets time.Duration // until nothing of it is used
}

// left returns what the limit leaves at a time.
func (s *slidingLog) left(at int64, limit VendorLimit) allowance {
	a := allowance{left: int64(limit.Count)}
	for _, passed := range s.times {
		if until := passed + int64(limit.Per) - at; until > 0 {
			a.left, a.resets = a.left-1, max(a.resets, time.Duration(until))
		}
	}
	return a
}

// slidingLog holds the times of the last Count calls let through, oldest at next once it is full. It grows to Count entries of
// 8 bytes and no further. The book's lock guards it.
type slidingLog struct {
	times []int64
	next  int
}

// admit lets a call at the given time through, or returns how long it should have waited.
func (s *slidingLog) admit(at int64, limit VendorLimit) (wait time.Duration) {
	if len(s.times) < limit.Count {
		s.times = append(s.times, at)
		return 0
	}
	if wait := s.times[s.next] + int64(limit.Per) - at; wait > 0 {
		return time.Duration(wait)
	}
	s.times[s.next] = at
	s.next = (s.next + 1) % limit.Count
	return 0
}
