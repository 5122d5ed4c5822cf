package httpintake

import (
	"net/http"
	"testing"
	"time"
)

// TestPolicyIsTheConfiguredRate checks that q jobs in w seconds is the configured rate, and not the rate that jitter
// leaves.
func TestPolicyIsTheConfiguredRate(t *testing.T) {
	for _, c := range []struct {
		capacity, count int64
		per             time.Duration
		want            string
	}{
		{50, 10, time.Second, `"bucket";q=50;w=5`},
		{3, 100, time.Second, `"bucket";q=3;w=1`},
		{500, 1, time.Minute, `"bucket";q=500;w=30000`},
		{7, 3, time.Second, `"bucket";q=7;w=3`},
		{1 << 50, 1, 24 * time.Hour, `"bucket";q=1125899906842624;w=31622400`},
		{5, 0, 0, `"bucket";q=5`},
	} {
		h := http.Header{}
		limitHeaders(h, Bucket{Capacity: c.capacity, Interval: 105 * time.Millisecond, Drain: DrainOf(c.capacity, c.count, c.per)}, 2, 1100)
		if got := h.Get("RateLimit-Policy"); got != c.want || h.Get("RateLimit") != `"bucket";r=2;t=2` {
			t.Errorf("%d at %d in %s: %s %s, want %s", c.capacity, c.count, c.per, got, h.Get("RateLimit"), c.want)
		}
	}
}
