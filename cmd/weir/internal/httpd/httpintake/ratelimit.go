package httpintake

import (
	"fmt"
	"math"
	"net/http"
	"time"
)

// limitHeaders sets the headers of draft-ietf-httpapi-ratelimit-headers-10 for a key's bucket. RateLimit-Policy has the
// configuration: how many jobs fit, and in how many seconds the configured rate drains a full bucket. RateLimit has the
// present state: how many more jobs fit, and in how many seconds the client should come back or the bucket will be
// empty. afterMS is the latter time in milliseconds.
func limitHeaders(h http.Header, b Bucket, remaining, afterMS int64) {
	if b.Capacity < 1 {
		return // the bucket is unknown
	}
	policy := fmt.Sprintf(`"bucket";q=%d`, b.Capacity)
	if b.Drain > 0 {
		policy += fmt.Sprintf(";w=%d", max(1, int64((b.Drain+time.Second-1)/time.Second)))
	}
	h.Set("RateLimit-Policy", policy)
	h.Set("RateLimit", fmt.Sprintf(`"bucket";r=%d;t=%d`, remaining, max(1, (afterMS+999)/1000)))
}

// longestDrain is the longest time that DrainOf returns: a year.
const longestDrain = 366 * 24 * time.Hour

// DrainOf returns how long a rate of count calls per period takes for jobs calls, at most longestDrain. It returns 0 if
// the rate is unknown.
func DrainOf(jobs, count int64, per time.Duration) time.Duration {
	if count < 1 || per <= 0 {
		return 0
	}
	if seconds := float64(jobs) * per.Seconds() / float64(count); seconds < longestDrain.Seconds() {
		return time.Duration(math.Ceil(seconds*1e6)) * time.Microsecond
	}
	return longestDrain
}
