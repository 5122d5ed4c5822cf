package httpcall

import (
	"math"
	"net/http"
	"strings"
	"time"

	"weir/bucket"
)

// Remainder is what is left of one limit, according to an answer.
type Remainder struct {
	Valid bool  // Units is valid
	Units int64 // units that were left when the vendor counted the call
	Timed bool  // Wait and Early are valid
	// Wait is the time from the answer until the vendor's count begins again at the latest. The count may begin again
	// up to Early sooner, because times come in whole seconds.
	Wait, Early time.Duration
	Garbled     bool // a header is there and cannot be read
}

// mostPeriods bounds how far ahead the vendor's count may begin again, in periods of the limit. A later time belongs to
// another limit, and is not used.
const mostPeriods = 2

// Remainders returns what is left of each shared limit, according to an answer. It returns nil if no limit reads that
// from answers, or if there is no answer. It also returns nil if the answer may count the calls of other clients. An
// answer from a cache counts those of an earlier client. An answer that does not accept weir's credentials counts those
// of all clients without credentials.
func (a *API) Remainders(r Response) []Remainder {
	age := r.Header.Get("Age")
	switch {
	case r.Status == 0, r.Status == http.StatusUnauthorized, r.Status == http.StatusProxyAuthRequired, age != "" && age != "0":
		return nil
	}
	var left []Remainder
	for i := range a.Rules.Shared {
		l := &a.Rules.Shared[i]
		if !l.ReadsLeft() {
			continue
		}
		if left == nil {
			left = make([]Remainder, len(a.Rules.Shared))
		}
		left[i] = remainderOf(l, r.Header, r.Headed)
	}
	return left
}

// remainderOf reads the headers of one limit. headed is when they came. The remainder of a rate is compared with what
// the rate lets start until the vendor's count begins again. So if the configuration names a header for that time, and
// the answer does not have that header, the remainder of a rate is not valid. A quota needs no such time: its own
// period stands in for it.
func remainderOf(l *bucket.Limit, h http.Header, headed time.Time) (m Remainder) {
	values := h.Values(l.Left.Header)
	m.Units, m.Valid = leastLeft(values)
	m.Garbled = len(values) > 0 && !m.Valid
	if !m.Valid || l.LeftUntil.Header == "" {
		return m
	}
	values = h.Values(l.LeftUntil.Header)
	m.Wait, m.Early, m.Timed = latestEnd(values, l.LeftUntil.Header, serverNow(h, headed))
	if m.Wait > mostPeriods*l.Period() {
		m.Wait, m.Early, m.Timed = 0, 0, false
	}
	if m.Timed {
		return m
	}
	if m.Garbled = len(values) > 0; l.Rate != nil {
		m.Valid, m.Units = false, 0
	}
	return m
}

// leastLeft returns the smallest number of units left that the values of a header name. A value is a number, a pair of
// used and allowed units such as 32/40, or the draft's field RateLimit.
func leastLeft(values []string) (least int64, found bool) {
	for _, value := range values {
		if len(value) > longestField {
			continue
		}
		read := windows{now: time.Now}
		if n, ok := readWhole(firstOf(value)); ok {
			read.all = []window{{remaining: n, counted: true}}
		} else if strings.Contains(value, "/") {
			read.readPair("", value)
		} else {
			read.readField("", value)
		}
		for i := range read.all {
			if w := &read.all[i]; w.counted && (!found || w.remaining < least) {
				least, found = w.remaining, true
			}
		}
	}
	return least, found
}

// latestEnd returns the longest wait that the values of a header give, and how much of that wait may be rounding. A
// value is a time as readTime accepts it, or the draft's field RateLimit.
func latestEnd(values []string, name string, now time.Time) (wait, early time.Duration, ok bool) {
	for _, value := range values {
		if len(value) > longestField {
			continue
		}
		first := firstOf(value)
		if n, number := readNumber(first); number && n < fromMillis && strings.HasSuffix(strings.ToLower(name), "-ms") {
			first += "ms"
		}
		w, read := readTime(first, now, math.MaxInt64)
		if !read {
			w, read = fieldEnd(value, now)
		}
		if read && (!ok || w > wait) {
			wait, early, ok = w, roundingOf(first), true
		}
	}
	return wait, early, ok
}

// fieldEnd returns the longest reset of the draft's field RateLimit.
func fieldEnd(value string, now time.Time) (wait time.Duration, ok bool) {
	read := windows{now: func() time.Time { return now }}
	read.readField("", value)
	for i := range read.all {
		if w := &read.all[i]; w.timed {
			wait, ok = max(wait, w.reset), true
		}
	}
	return wait, ok
}

// roundingOf returns by how much a value may be rounded. A duration with a fraction of a second is not rounded. Other
// waits are in whole seconds. Times are compared with the api's clock, which an answer reports in whole seconds.
func roundingOf(value string) time.Duration {
	if d, err := time.ParseDuration(value); err == nil && d%time.Second != 0 {
		return 0
	}
	if n, ok := readNumber(value); ok && n < fromSeconds && n != math.Trunc(n) {
		return 0
	}
	return time.Second
}
