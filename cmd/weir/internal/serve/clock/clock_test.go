package clock

import (
	"testing"
	"time"

	"weir/bucket"
)

// TestElapsed checks that elapsed advances as the wall clock does while that is not set.
func TestElapsed(t *testing.T) {
	c := New()
	if off := time.Duration(bucket.MicrosOf(time.Now())-c.Now()) * time.Microsecond; off.Abs() > time.Second {
		t.Errorf("the clock is off by %v", off)
	}
	if a, b := c.Now(), c.Now(); b < a {
		t.Errorf("%d after %d", b, a)
	}
}

// TestHeldUpIsNotSet checks that Ahead stays right if the process is held up between the readings of the two clocks,
// before and after the wall clock was set.
func TestHeldUpIsNotSet(t *testing.T) {
	const held, set = 200 * time.Millisecond, time.Hour
	start := time.Unix(1_800_000_000, 0)
	for _, by := range []time.Duration{0, set, -set} {
		var passed time.Duration
		step := func() time.Duration { return 0 }
		c := &Clock{start: bucket.MicrosOf(start)}
		c.passed = func() time.Duration { passed += step(); return passed }
		c.wall = func() time.Time { passed += step(); return start.Add(passed + by) }
		if got := bucket.Micros(0).Until(c.Ahead()); got != by {
			t.Errorf("undisturbed it is ahead by %v, not %v", got, by)
		}
		for at := range 3 { // the process is held up before it reads Now, the wall clock, or Now again
			reading := 0
			step = func() time.Duration {
				if reading++; reading == at+1 {
					return held
				}
				return 0
			}
			if got := bucket.Micros(0).Until(c.Ahead()); got != by {
				t.Errorf("held up before reading %d it is ahead by %v, not %v", at+1, got, by)
			}
		}
		// The wall clock is set while the process is held up. Ahead follows at once as far as the readings are certain,
		// and completely at the next reading.
		const more = time.Minute
		for at := range 3 {
			reading := 0
			step = func() time.Duration {
				if reading++; reading == at+1 {
					return held
				}
				return 0
			}
			by += more
			if got := bucket.Micros(0).Until(c.Ahead()); got > by || got < by-held {
				t.Errorf("set while held up before reading %d it is ahead by %v, not %v", at+1, got, by)
			}
			step = func() time.Duration { return 0 }
			if got := bucket.Micros(0).Until(c.Ahead()); got != by {
				t.Errorf("read again it is ahead by %v, not %v", got, by)
			}
		}
	}
}
