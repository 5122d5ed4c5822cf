package fakeapi

import (
	"errors"
	"net/http"
	"strconv"
	"time"
)

// LimitScope says which calls one limit counts together.
type LimitScope string

const (
	// EachKey gives each key a limit of its own. It is the zero value.
	EachKey LimitScope = ""
	// AllKeys lets all keys share one limit.
	AllKeys LimitScope = "all"
)

// RetryAfterForm is the form of the header Retry-After in a refusal.
type RetryAfterForm string

const (
	// Seconds is whole seconds, rounded up and at least 1. It is the zero value.
	Seconds RetryAfterForm = ""
	// HTTPDate is a date, rounded up to a second.
	HTTPDate RetryAfterForm = "date"
	// Absent sends no header Retry-After.
	Absent RetryAfterForm = "absent"
)

// VendorLimit is the api's own limit: at most Count calls in any period of length Per. It is a sliding log of the calls
// that it let through. The window is half open: a call that is exactly Per old no longer counts. A refused call gets
// 429. It is recorded as an arrival and does not count against the limit. The zero value is no limit.
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

// retryAfter returns the header's value for a wait that begins now, or "" for Absent.
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

// allowance is what is left of a limit after a call.
type allowance struct {
	left   int64
	resets time.Duration // until the limit is unused again
}

// left returns what is left of the limit at a time.
func (s *slidingLog) left(at int64, limit VendorLimit) allowance {
	a := allowance{left: int64(limit.Count)}
	for _, passed := range s.times {
		if until := passed + int64(limit.Per) - at; until > 0 {
			a.left, a.resets = a.left-1, max(a.resets, time.Duration(until))
		}
	}
	return a
}

// slidingLog holds the times of the last calls that were let through, at most Count of them. Once it is full, the
// oldest is at next. Each entry takes 8 bytes. The book's lock guards it.
type slidingLog struct {
	times []int64
	next  int
}

// admit lets a call through, or returns how much longer the call should have waited.
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
