package door

import (
	"fmt"
	"math"
	"net/http"
	"time"
)

// limitHeaders tells a key's bucket as draft-ietf-httpapi-ratelimit-headers-10 has it. The policy is what is configured: how many jobs fit,
// and in how many seconds the configured rate drains a full bucket. The other header is how it is: how many more fit now, and after how
// many milliseconds it is worth coming back, or the bucket is empty.
func limitHeaders(h http.Header, b Bucket, remaining, afterMS int64) {
	if b.Capacity < 1 {
		return // where it is not known
	}
	policy := fmt.Sprintf(`"bucket";q=%d`, b.Capacity)
	if b.Drain > 0 {
		policy += fmt.Sprintf(";w=%d", max(1, int64((b.Drain+time.Second-1)/time.Second)))
	}
	h.Set("RateLimit-Policy", policy)
	h.Set("RateLimit", fmt.Sprintf(`"bucket";r=%d;t=%d`, remaining, max(1, (afterMS+999)/1000)))
}

// longestDrain bounds what is said of slow buckets: a year.
const longestDrain = 366 * 24 * time.Hour

// DrainOf is how long a rate of count calls in per takes for a number of jobs.
func DrainOf(jobs, count int64, per time.Duration) time.Duration {
	if count < 1 || per <= 0 {
		return 0
	}
	if seconds := float64(jobs) * per.Seconds() / float64(count); seconds < longestDrain.Seconds() {
		return time.Duration(math.Ceil(seconds*1e6)) * time.Microsecond
	}
	return longestDrain
}
