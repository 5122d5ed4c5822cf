package dispatcher

import (
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// backoff is how long to wait after the n-th failure in a row (the first is 1): exponential from least up to most, with
// full jitter over the upper half, so that jobs that failed together do not come back together.
func backoff(least, most time.Duration, n int) time.Duration {
	d := float64(least) * math.Pow(2, float64(min(n, 40)-1))
	d = math.Min(d, float64(most))
	return time.Duration(d/2 + rand.Float64()*d/2)
}

// maxRetryAfter bounds what an api may ask for: a broken header must not stop a key for a year.
const maxRetryAfter = 24 * time.Hour

// retryAfter reads how long the api asks to wait (RFC 9110 section 10.2.3: seconds or a date; decimals are taken too).
// ok is false when it does not say, or says what cannot be read.
func retryAfter(h http.Header, now time.Time) (d time.Duration, ok bool) {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if value == "" {
		return 0, false
	}
	if seconds, err := strconv.ParseFloat(value, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		if !(seconds >= 0) { // NaN too
			return 0, false
		}
		if seconds > maxRetryAfter.Seconds() {
			return maxRetryAfter, true
		}
		return time.Duration(math.Ceil(seconds*1e6)) * time.Microsecond, true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return min(max(0, at.Sub(now)), maxRetryAfter), true
}
