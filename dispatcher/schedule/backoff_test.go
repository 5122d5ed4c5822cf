package schedule

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestBackoff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		least := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(24*time.Hour)).Draw(t, "min"))
		most := time.Duration(rapid.Int64Range(int64(least), int64(24*time.Hour)).Draw(t, "max"))
		n := rapid.IntRange(1, 1_000_000).Draw(t, "n")
		full := least
		for range min(n, 60) - 1 {
			full = min(2*full, most)
		}
		if d := Backoff(least, most, n, rapid.Float64Range(0, 1).Draw(t, "jitter")); d < full/2 || d > full {
			t.Fatalf("backoff %v to %v after %d failures: %v, not from %v to %v", least, most, n, d, full/2, full)
		}
	})
}
