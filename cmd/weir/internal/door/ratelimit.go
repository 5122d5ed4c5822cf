package door

import (
	"fmt"
	"net/http"
	"time"
)

// limitHeaders tells a key's bucket as draft-ietf-httpapi-ratelimit-headers-10 has it: how many jobs fit and in how many seconds a full
// bucket drains, how many more fit now, and after how many milliseconds it is worth coming back, or the bucket is empty.
func limitHeaders(h http.Header, capacity int64, interval time.Duration, remaining, afterMS int64) {
	if capacity < 1 {
		return // where it is not known
	}
	policy := fmt.Sprintf(`"bucket";q=%d`, capacity)
	if interval > 0 {
		policy += fmt.Sprintf(";w=%d", drain(capacity, interval))
	}
	h.Set("RateLimit-Policy", policy)
	h.Set("RateLimit", fmt.Sprintf(`"bucket";r=%d;t=%d`, remaining, seconds(afterMS)))
}

// longestWindow bounds what is said of slow buckets: a year.
const longestWindow = 366 * 24 * time.Hour

// drain is how many seconds so many calls take, rounded up.
func drain(calls int64, interval time.Duration) int64 {
	if interval > longestWindow/time.Duration(max(1, min(calls, int64(longestWindow)))) {
		return int64(longestWindow / time.Second)
	}
	return seconds((time.Duration(calls) * interval).Milliseconds())
}

// seconds rounds up, and is at least one.
func seconds(ms int64) int64 { return max(1, (ms+999)/1000) }
