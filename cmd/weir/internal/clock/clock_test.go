package clock

import (
	"testing"
	"time"

	"weir/bucket"
)

// TestElapsed: the time that passes goes on as the wall's does, as long as nobody sets it.
func TestElapsed(t *testing.T) {
	c := New()
	if off := time.Duration(bucket.MicrosOf(time.Now())-c.Now()) * time.Microsecond; off.Abs() > time.Second {
		t.Errorf("the clock is off by %v", off)
	}
	if a, b := c.Now(), c.Now(); b < a {
		t.Errorf("%d after %d", b, a)
	}
}
