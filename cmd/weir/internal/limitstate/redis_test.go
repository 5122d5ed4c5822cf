package limitstate

import (
	"testing"
	"time"
)

// TestClockWatch: a jump is one that the way there and back does not explain.
func TestClockWatch(t *testing.T) {
	var w clockWatch
	for i, c := range []struct{ ahead, wrong, jump time.Duration }{
		{40 * time.Second, 0, 0}, // never the same as ours: no jump
		{40*time.Second + 200*time.Millisecond, 0, 0},
		{41 * time.Second, 0, 800 * time.Millisecond},
		{41*time.Second + 900*time.Millisecond, 500 * time.Millisecond, 0}, // the way took a second, which tells nothing
		{41*time.Second + 900*time.Millisecond, 0, 900 * time.Millisecond}, // it had jumped
		{43*time.Second + 900*time.Millisecond, 2 * time.Second, 0},        // a script held the answer up for four seconds,
		{41*time.Second + 900*time.Millisecond, time.Millisecond, 0},       // and has ended
		{42*time.Second + 100*time.Millisecond, 200 * time.Millisecond, 0}, // less long
		{41*time.Second + 800*time.Millisecond, time.Millisecond, 0},
		{41*time.Second + 900*time.Millisecond, 0, 0},
		{-10 * time.Second, 0, -51*time.Second - 900*time.Millisecond},
	} {
		if got := w.look(c.ahead, c.wrong); got != c.jump {
			t.Errorf("look %d: a jump of %s, want %s", i, got, c.jump)
		}
	}
}
