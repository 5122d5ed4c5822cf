package deadletter

import (
	"testing"
	"time"

	"weir/bucket"
)

// TestInflow checks that the forecast overflow depends on the redrive's rate, on the order of its letters, and on how
// fast the buckets drain, and that nothing overflows at the rate that weir offers.
func TestInflow(t *testing.T) {
	every := func(n, step, from int) (places []uint32) {
		for i := range n {
			places = append(places, uint32(from+i*step))
		}
		return places
	}
	for _, c := range []struct {
		what    string
		keys    inflow
		rate    bucket.Rate
		most    int64 // overflow at that rate
		least   int64
		roomy   bool
		fastest float64 // the highest rate that weir may offer, per second
		slowest float64
	}{
		{"at once", inflow{{places: every(100, 1, 0), capacity: 60, drains: 10}}, bucket.Rate{Count: 1000, Per: time.Second}, 40, 38, true, 25, 15},
		{"slower than the bucket", inflow{{places: every(100, 1, 0), capacity: 1, drains: 10}}, bucket.Rate{Count: 9, Per: time.Second}, 0, 0, true, 9, 0},
		{"spread over ten keys", inflow{{places: every(100, 10, 0), capacity: 5, drains: 10}}, bucket.Rate{Count: 50, Per: time.Second}, 0, 0, true, 50, 0},
		{"late in the list, after an empty bucket", inflow{{places: every(100, 1, 100_000), capacity: 50, drains: 10}}, bucket.Rate{Count: 1000, Per: time.Second}, 50, 48, true, 20, 12},
		{"a bucket that is full and stays so", inflow{{places: every(5, 1, 0), waiting: 10, capacity: 10}}, bucket.Rate{Count: 1, Per: time.Second}, 5, 5, false, 0, 0},
		{"slow buckets are offered letters a minute", inflow{{places: every(20, 1, 0), capacity: 2, drains: 0.5}}, bucket.Rate{Count: 100, Per: time.Second}, 18, 17, true, 0.6, 0.4},
	} {
		n := c.keys.overflow(c.rate.Per.Seconds()/float64(c.rate.Count), 1)
		if n < c.least || n > c.most {
			t.Errorf("%s: %d overflow, want %d to %d", c.what, n, c.least, c.most)
		}
		if n == 0 {
			continue
		}
		roomy, ok := c.keys.roomy(c.rate)
		if ok != c.roomy {
			t.Errorf("%s: is a rate offered? %v", c.what, ok)
		}
		if !ok {
			continue
		}
		perSecond := float64(roomy.Count) / roomy.Per.Seconds()
		if perSecond > c.fastest || perSecond < c.slowest || c.keys.overflow(1/perSecond, rateMargin) != 0 {
			t.Errorf("%s: %d/%s is offered, at which %d overflow", c.what, roomy.Count, roomy.Per, c.keys.overflow(1/perSecond, rateMargin))
		}
	}
}
