package limitstate

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestClockOfRedisIsTold checks that a step of Redis's clock is reported like a step of this machine's clock, and that
// noise is not.
func TestClockOfRedisIsTold(t *testing.T) {
	var told []time.Duration
	s := &sharedLimits{
		redis: &Redis{jumps: prometheus.NewCounter(prometheus.CounterOpts{Name: "jumps"})}, log: slog.New(slog.DiscardHandler),
		moved: func(by time.Duration) { told = append(told, by) },
	}
	for _, ahead := range []time.Duration{time.Second, -time.Hour, -time.Hour + 900*time.Millisecond, -time.Hour + time.Second, 0} {
		s.look(ahead, 0)
	}
	if want := []time.Duration{-time.Hour - time.Second, time.Hour - time.Second}; !slices.Equal(told, want) {
		t.Errorf("told %s, want %s", told, want)
	}
}

// TestClockWatch checks that a change of Redis's clock counts as a jump only if the duration of the request does not
// explain it.
func TestClockWatch(t *testing.T) {
	var w clockWatch
	for i, c := range []struct{ ahead, wrong, jump time.Duration }{
		{40 * time.Second, 0, 0}, // a constant difference from our clock: no jump
		{40*time.Second + 200*time.Millisecond, 0, 0},
		{41 * time.Second, 0, 800 * time.Millisecond},
		{41*time.Second + 900*time.Millisecond, 500 * time.Millisecond, 0}, // the request took a second, which says nothing
		{41*time.Second + 900*time.Millisecond, 0, 900 * time.Millisecond}, // the clock had jumped
		{43*time.Second + 900*time.Millisecond, 2 * time.Second, 0},        // a script delayed the answer by four seconds,
		{41*time.Second + 900*time.Millisecond, time.Millisecond, 0},       // and has ended
		{42*time.Second + 100*time.Millisecond, 200 * time.Millisecond, 0}, // a shorter delay
		{41*time.Second + 800*time.Millisecond, time.Millisecond, 0},
		{41*time.Second + 900*time.Millisecond, 0, 0},
		{-10 * time.Second, 0, -51*time.Second - 900*time.Millisecond},
	} {
		if got := w.look(c.ahead, c.wrong); got != c.jump {
			t.Errorf("look %d: a jump of %s, want %s", i, got, c.jump)
		}
	}
}
