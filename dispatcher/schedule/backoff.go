package schedule

import (
	"math"
	"time"
)

// Backoff returns the delay after the n-th failure in a row (the first is 1). It grows exponentially from least
// to most. jitter, from 0 to 1, spreads it over the upper half, so that jobs that failed together do not come
// back together.
func Backoff(least, most time.Duration, n int, jitter float64) time.Duration {
	d := float64(least) * math.Pow(2, float64(min(n, 40)-1))
	d = math.Min(d, float64(most))
	return time.Duration(d/2 + jitter*d/2)
}
