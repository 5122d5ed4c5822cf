package clock

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"weir/bucket"
)

// Clock is what slots are reckoned by: the wall clock of the start, carried on by the time that has really passed, a
// suspended machine's too. Stepping the machine's clock moves no slot. Where the wall has been set since, calendars
// and deadlines go by it all the same, and so does whatever a later process will read: Ahead is by how much. It is safe for
// concurrent use.
type Clock struct {
	start  bucket.Micros
	wall   func() time.Time
	passed func() time.Duration // since the start
	ahead  atomic.Int64         // microseconds
	set    atomic.Int64         // by how much a test has set the wall, in nanoseconds
}

// New is a clock that begins now.
func New() *Clock { return StartingAt(time.Now()) }

// StartingAt is a clock that begins with another time than the machine's, as one does whose machine's clock is set afterwards.
func StartingAt(start time.Time) *Clock {
	since := elapsed()
	return &Clock{start: bucket.MicrosOf(start), wall: time.Now, passed: func() time.Duration { return elapsed() - since }}
}

// Set sets the wall clock as if the machine's were set by so much: tests do.
func (c *Clock) Set(by time.Duration) { c.set.Add(int64(by)) }

// Now is the time that slots are reckoned by. It never goes back.
func (c *Clock) Now() bucket.Micros { return c.start.Add(c.passed()) }

// Noise is how far the two clocks may come apart before Ahead follows.
const Noise = bucket.Micros(time.Millisecond / time.Microsecond)

// Ahead is by how much the wall clock is ahead of Now; it is negative where the wall is behind.
//
// It reads the wall between two readings of Now, and follows only as far as both say that the wall has moved. With one reading a machine
// that holds the process up between the two clocks would look like a wall that was set, and a quota's period would begin too early.
func (c *Clock) Ahead() bucket.Micros {
	was, began := bucket.Micros(c.ahead.Load()), c.Now()
	wall := bucket.MicrosOf(c.wall().Add(time.Duration(c.set.Load())))
	least, most := wall-c.Now(), wall-began
	if is := min(max(was, least), most); is < was-Noise || is > was+Noise {
		c.ahead.CompareAndSwap(int64(was), int64(is)) // else another has just read them
	}
	return bucket.Micros(c.ahead.Load())
}

// A wall clock that is slewed is off by little, and nobody need hear of it.
const (
	check = 10 * time.Second
	Step  = bucket.Micros(time.Second / time.Microsecond)
)

// Watch tells when the wall clock was set, until ctx ends.
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
