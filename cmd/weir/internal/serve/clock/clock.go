package clock

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"weir/bucket"
)

// Clock is the clock of slots. It adds the time elapsed since the start to what the wall clock showed at the start. So
// setting the machine's clock moves no slot. The time that a machine was suspended counts as elapsed. Calendars and
// deadlines follow the wall clock, and so does every time that a later process reads. Ahead says how far the wall clock
// is ahead of this clock. Clock is safe for concurrent use.
type Clock struct {
	start  bucket.Micros
	wall   func() time.Time
	passed func() time.Duration // since the start
	ahead  atomic.Int64         // microseconds
	set    atomic.Int64         // nanoseconds by which a test has set the wall clock
}

// New returns a clock that begins now.
func New() *Clock { return StartingAt(time.Now()) }

// StartingAt returns a clock that begins at start. If start is not the present time, Ahead reports the difference, as
// if the wall clock had been set.
func StartingAt(start time.Time) *Clock {
	since := elapsed()
	return &Clock{start: bucket.MicrosOf(start), wall: time.Now, passed: func() time.Duration { return elapsed() - since }}
}

// Set moves the wall clock as if the machine's clock were set. Only tests call it.
func (c *Clock) Set(by time.Duration) { c.set.Add(int64(by)) }

// Now returns the time for slots. It never goes back.
func (c *Clock) Now() bucket.Micros { return c.start.Add(c.passed()) }

// Noise is the largest change of the difference between the two clocks that Ahead ignores.
const Noise = bucket.Micros(time.Millisecond / time.Microsecond)

// Ahead returns how far the wall clock is ahead of Now; it is negative if the wall clock is behind.
//
// It reads the wall clock between two readings of Now, and changes its value only as far as both readings require. With
// one reading, a pause of the process between reading the two clocks would look as if the wall clock had been set, and
// the period of a quota would begin too early.
func (c *Clock) Ahead() bucket.Micros {
	was, began := bucket.Micros(c.ahead.Load()), c.Now()
	wall := bucket.MicrosOf(c.wall().Add(time.Duration(c.set.Load())))
	least, most := wall-c.Now(), wall-began
	if is := min(max(was, least), most); is < was-Noise || is > was+Noise {
		c.ahead.CompareAndSwap(int64(was), int64(is)) // if this fails, another goroutine has just updated the value
	}
	return bucket.Micros(c.ahead.Load())
}

// Watch compares the clocks every check, and reports steps of more than Step. A wall clock that is slewed shows only
// smaller differences, which are not reported.
const (
	check = 10 * time.Second
	Step  = bucket.Micros(time.Second / time.Microsecond)
)

// Watch logs each time that the wall clock was set, until ctx ends.
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
