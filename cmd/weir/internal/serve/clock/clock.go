package clock

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"weir/bucket"
)

// Clock is the clock for slots: the wall clock of the start plus the time elapsed since, including the sleep of a
// suspended machine. Setting the machine's clock moves no slot. Calendars, deadlines and times that a later process
// reads follow the wall clock; Ahead is the difference. It is safe for concurrent use.
type Clock struct {
	start  bucket.Micros
	wall   func() time.Time
	passed func() time.Duration // since the start
	ahead  atomic.Int64         // microseconds
	set    atomic.Int64         // by how much a test has set the wall, in nanoseconds
}

// New returns a clock that begins now.
func New() *Clock { return StartingAt(time.Now()) }

// StartingAt returns a clock that begins at start, as if the machine's clock were set after that.
func StartingAt(start time.Time) *Clock {
	since := elapsed()
	return &Clock{start: bucket.MicrosOf(start), wall: time.Now, passed: func() time.Duration { return elapsed() - since }}
}

// Set moves the wall clock as if the machine's clock were set. Only tests call it.
func (c *Clock) Set(by time.Duration) { c.set.Add(int64(by)) }

// Now returns the time for slots. It never goes back.
func (c *Clock) Now() bucket.Micros { return c.start.Add(c.passed()) }

// Noise is how far the two clocks may differ before Ahead follows.
const Noise = bucket.Micros(time.Millisecond / time.Microsecond)

// Ahead returns how far the wall clock is ahead of Now; it is negative if the wall clock is behind.
//
// It reads the wall clock between two readings of Now, and follows only as far as both agree. With one reading, a pause
// of the process between the two clocks would look like a wall clock that was set, and a quota's period would begin too
// early.
func (c *Clock) Ahead() bucket.Micros {
	was, began := bucket.Micros(c.ahead.Load()), c.Now()
	wall := bucket.MicrosOf(c.wall().Add(time.Duration(c.set.Load())))
	least, most := wall-c.Now(), wall-began
	if is := min(max(was, least), most); is < was-Noise || is > was+Noise {
		c.ahead.CompareAndSwap(int64(was), int64(is)) // otherwise another goroutine has just read them
	}
	return bucket.Micros(c.ahead.Load())
}

// Bounds of Watch. A slewed wall clock is off by little and is not reported.
const (
	check = 10 * time.Second
	Step  = bucket.Micros(time.Second / time.Microsecond)
)

// Watch logs when the wall clock was set, until ctx ends.
func (c *Clock) Watch(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(check)
	defer tick.Stop()
	for told := bucket.Micros(0); ; {
		if now := c.Ahead(); now > told+Step || now < told-Step {
			log.Warn("the machine's clock was set: calendars and deadlines follow it, rates go by elapsed time",
				"by", told.Until(now), "since_start", bucket.Micros(0).Until(now))
			told = now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
