package schedule

import (
	"math"
	"time"
)

// Backoff is how long to wait after the n-th failure in a row (the first is 1): exponential from least up to most, and
// spread over the upper half by jitter, from 0 to 1, so that jobs that failed together do not come back together.
func Backoff(least, most time.Duration, n int, jitter float64) time.Duration {
	d := float64(least) * math.Pow(2, float64(min(n, 40)-1))
	d = math.Min(d, float64(most))
	return time.Duration(d/2 + jitter*d/2)
}
