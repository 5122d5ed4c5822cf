package dispatcher

import (
	"math"
	"math/rand/v2"
	"time"
)

// backoff is how long to wait after the n-th failure in a row (the first is 1): exponential from least up to most, with
// full jitter over the upper half, so that jobs that failed together do not come back together.
func backoff(least, most time.Duration, n int) time.Duration {
	d := float64(least) * math.Pow(2, float64(min(n, 40)-1))
	d = math.Min(d, float64(most))
	return time.Duration(d/2 + rand.Float64()*d/2)
}
