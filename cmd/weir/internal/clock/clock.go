package clock

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"weir/bucket"
)

// Clock is what slots are reckoned by: the wall clock of the start, carried on by the time that has really passed, a
// suspended machine's too. Stepping the machine's clock moves no slot. Where the wall has been set forward since, calendars
// and deadlines go by it all the same, and so does whatever a later process will read: Ahead is by how much. It is safe for
// concurrent use.
type Clock struct {
	start  bucket.Micros
	wall   func() time.Time
	passed func() time.Duration // since the start
	ahead  atomic.Int64         // microseconds
}

// New is a clock that begins now.
func New() *Clock { return StartingAt(time.Now()) }

// StartingAt is a clock that begins with another time than the machine's, as one does whose machine's clock is set afterwards.
func StartingAt(start time.Time) *Clock {
	since := elapsed()
	return &Clock{start: bucket.MicrosOf(start), wall: time.Now, passed: func() time.Duration { return elapsed() - since }}
}

// Now is the time that slots are reckoned by. It never goes back.
func (c *Clock) Now() bucket.Micros { return c.start.Add(c.passed()) }

// noise is what two clocks that are read one after the other may seem to be apart, in microseconds.
const noise = 1000

// Ahead is by how much the wall clock is ahead of Now, or was: it never shrinks, since a calendar that goes back would give
// a quota out twice.
func (c *Clock) Ahead() bucket.Micros {
	now := int64(bucket.MicrosOf(c.wall()) - c.Now())
	for {
		was := c.ahead.Load()
		if now < was+noise || c.ahead.CompareAndSwap(was, now) {
			return bucket.Micros(max(c.ahead.Load(), 0))
		}
	}
}

// A wall clock that is slewed is off by little, and nobody need hear of it.
const (
	check = 10 * time.Second
	Step  = bucket.Micros(time.Second / time.Microsecond)
)

// Watch tells when the wall clock was set forward, until ctx ends.
func (c *Clock) Watch(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(check)
	defer tick.Stop()
	for told := bucket.Micros(0); ; {
		if now := c.Ahead(); now > told+Step {
			log.Warn("the machine's clock was set forward since the start: calendars and deadlines follow it, the pace goes on by the time that passes",
				"by", bucket.Micros(0).Until(now))
			told = now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
