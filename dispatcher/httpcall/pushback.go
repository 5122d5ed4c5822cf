package httpcall

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"weir/dispatcher/schedule"
)

// mostHold bounds the wait that an api may ask for, so that a broken header does not stop a key for a year.
const mostHold = schedule.MostHold

// askedToWait reads how long an api that pushed back or failed asks weir to wait. Retry-After comes before everything
// else, as the draft on RateLimit fields demands. Otherwise the windows that are used up count. If they give no wait,
// the windows that do not report what is left of them count.
func askedToWait(h http.Header, now time.Time) schedule.Advice {
	if a, ok := retryAfter(h, now); ok {
		return a
	}
	windows := readWindows(h, now)
	spent := spentOf(windows)
	if spent.Wait > 0 {
		return spent
	}
	var a schedule.Advice
	for _, w := range windows {
		if !w.counted && w.timed {
			a = later(a, w)
		}
	}
	if a.Wait > 0 {
		return a
	}
	return spent
}

// retryAfter reads the headers that say explicitly how long to wait. If a header occurs more than once, as when a proxy
// adds its own, the longest wait counts.
func retryAfter(h http.Header, now time.Time) (a schedule.Advice, ok bool) {
	for _, name := range []string{"Retry-After", "Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		for _, value := range h[name] {
			if strings.HasSuffix(name, "-Ms") && value != "" {
				value += "ms"
			}
			if wait, read := readWait(value, serverNow(h, now)); read {
				a, ok = schedule.Advice{Wait: max(a.Wait, wait), Header: strings.ToLower(name)}, true
			}
		}
		if ok {
			return a, true
		}
	}
	return a, false
}

// usedUp reads the headers of a normal answer. They make weir hold only if a window has no call left.
func usedUp(h http.Header, now time.Time) schedule.Advice {
	if age := h.Get("Age"); age != "" && age != "0" {
		return schedule.Advice{} // from a cache: the counts are older, and were another client's
	}
	return spentOf(readWindows(h, now))
}

// spentOf returns how long it takes until the last of the windows that are used up opens again. If no window says when,
// the advice has no wait.
func spentOf(windows []window) schedule.Advice {
	var a, untold schedule.Advice
	for _, w := range windows {
		switch {
		case !w.counted || w.remaining > 0 || w.limited && w.limit <= 0: // a limit of nothing is no limit
		case w.timed:
			a = later(a, w)
		case untold.Header == "" || w.name < untold.Header:
			untold = schedule.Advice{Header: w.name, Spent: true}
		}
	}
	if a.Header == "" {
		return untold
	}
	return a
}

// later returns the longer of a and the wait until w opens again.
func later(a schedule.Advice, w window) schedule.Advice {
	if a.Header == "" || w.reset > a.Wait || w.reset == a.Wait && w.name < a.Header {
		a.Wait, a.Header = w.reset, w.name
	}
	return a
}

// serverNow returns the time of the api's clock when the api answered, because the api's dates count by that clock.
// Without a Date it returns now. The header is in whole seconds, rounded down. So a wait counted from it is up to a
// second too long, and never too short.
func serverNow(h http.Header, now time.Time) time.Time {
	if at, err := http.ParseTime(h.Get("Date")); err == nil {
		return at
	}
	return now
}

// Bounds that tell waits from times. A number below fromSeconds is a wait in seconds. A larger one is a time since
// 1970: in seconds from fromSeconds on, in milliseconds from fromMillis on, in microseconds from fromMicros on, in
// nanoseconds from fromNanos on. Each range begins before there were paid apis and ends some thousand years from now.
const (
	fromSeconds = 1e9
	fromMillis  = 1e11
	fromMicros  = 1e14
	fromNanos   = 1e17
	noTime      = 1e20
)

// readWait reads how long to wait, counted from now, as readTime does. The wait is from 0 to mostHold.
func readWait(value string, now time.Time) (wait time.Duration, ok bool) {
	return readTime(value, now, mostHold)
}

// readTime reads how long it takes from now to a time. It accepts seconds, with or without decimals; a time since 1970
// in seconds, milliseconds, microseconds or nanoseconds; a Go duration; an HTTP date; a time as in RFC 3339. The wait
// is from 0 to most. ok is false for a value that cannot be read or is negative.
func readTime(value string, now time.Time, most time.Duration) (wait time.Duration, ok bool) {
	value = strings.TrimSpace(value)
	if seconds, ok := readNumber(value); ok {
		switch {
		case seconds < fromSeconds:
			return bounded(seconds, most), true
		case seconds >= noTime:
			return most, true
		case seconds >= fromNanos:
			seconds /= 1e9
		case seconds >= fromMicros:
			seconds /= 1e6
		case seconds >= fromMillis:
			seconds /= 1e3
		}
		return bounded(seconds-float64(now.UnixMicro())/1e6, most), true
	}
	if d, err := time.ParseDuration(value); err == nil {
		return min(max(0, d), most), d >= 0
	}
	at, err := http.ParseTime(value)
	if err != nil {
		at, err = time.Parse(time.RFC3339, value)
	}
	if err != nil {
		return 0, false
	}
	return min(max(0, at.Sub(now)), most), true
}

// bounded converts a number of seconds to a wait of at most most. It rounds up to whole microseconds.
func bounded(seconds float64, most time.Duration) time.Duration {
	switch {
	case seconds <= 0:
		return 0
	case seconds >= most.Seconds():
		return most
	}
	micros := time.Duration(seconds * 1e6)
	if float64(micros) < seconds*1e6 {
		micros++
	}
	return micros * time.Microsecond
}

// readNumber reads a number that is not negative. It accepts no sign, no hexadecimal digits, and no name for infinity.
// A number too large for a float64 is infinite.
func readNumber(text string) (n float64, ok bool) {
	if text == "" || strings.Trim(text, "0123456789.eE+") != "" || text[0] == '+' {
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil && n == 0 {
		return 0, false
	}
	return n, true
}

// AskedToWait returns how long the headers of an answer explicitly ask weir to wait before the next request, 0 if they
// do not.
func AskedToWait(r Response, now time.Time) time.Duration {
	if r.Status == 0 {
		return 0
	}
	a, _ := retryAfter(r.Header, now)
	return min(a.Wait, schedule.MostHold)
}

// PushedBackFor returns how long an api must not be called after it pushed back a request: at least a second. It
// returns 0 if the api did not push back.
func PushedBackFor(r Response, now time.Time) time.Duration {
	if r.Status != 429 && r.Status != 503 {
		return 0
	}
	return min(max(askedToWait(r.Header, now).Wait, time.Second), schedule.MostHold)
}
