package lane

import (
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule"
)

// TestStoredTimesAreReadByTheWallClock checks that a stored hold lasts as long as the wall clock says, even if the wall
// clock was set since the start.
func TestStoredTimesAreReadByTheWallClock(t *testing.T) {
	const now, hold = bucket.Micros(1_800_000_000_000_000), time.Minute
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		l := &Lane{
			Env: &Env{Ahead: func() bucket.Micros { return bucket.Micros(0).Add(ahead) }}, Now: func() bucket.Micros { return now },
			Terms: &Terms{Policy: &schedule.Policy{}},
		}
		if got := now.Until(l.HeldAtMostLocked(now.Add(ahead + hold))); got != hold {
			t.Errorf("the wall clock was set by %v: a hold of %v lasts %v", ahead, hold, got)
		}
	}
}
