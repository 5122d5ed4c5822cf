package clock

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// elapsed is a time that nobody sets and that goes on while the machine is suspended.
//
// It is CLOCK_BOOTTIME, which Go can only ask the kernel for, at 600 ns a time, and calls ask several times each. So it is taken from
// Go's own monotonic clock, which stands still only in a suspended machine, and by how much the other is ahead of it.
func elapsed() time.Duration { return boot.now(time.Now()) }

var boot = newBoottime()

// boottime carries the monotonic clock on over the times that the machine was suspended. It is safe for concurrent use.
type boottime struct {
	base    time.Time            // where the monotonic clock is counted from
	kernel  func() time.Duration // CLOCK_BOOTTIME
	ahead   atomic.Int64         // by how much CLOCK_BOOTTIME is ahead of it at least, in nanoseconds; it never shrinks
	wall    atomic.Int64         // by how much the wall clock was when that was measured last
	checked atomic.Int64         // when that was
}

// A suspended machine wakes with a wall clock that has gone on, and a monotonic one that has not. stirred is how far the two must have
// moved apart for that; in case both were set, it is looked at every recheck, too.
const (
	stirred = time.Millisecond
	recheck = time.Second
)

func newBoottime() *boottime {
	b := &boottime{base: time.Now(), kernel: boottimeNow}
	b.ahead.Store(int64(b.kernel()) - int64(time.Since(b.base)))
	for range 10 { // the one that is disturbed least is the nearest
		b.measure()
	}
	return b
}

func (b *boottime) now(t time.Time) time.Duration {
	passed := t.Sub(b.base)
	apart := time.Duration(t.UnixNano()-b.base.UnixNano()) - passed
	if (apart-time.Duration(b.wall.Load())).Abs() > stirred || passed-time.Duration(b.checked.Load()) > recheck {
		b.measure()
		b.wall.Store(int64(apart)) // only now: who finds this takes ahead for what it is since the sleep
		b.checked.Store(int64(passed))
	}
	return passed + time.Duration(b.ahead.Load())
}

// measure learns by how much CLOCK_BOOTTIME is ahead. What it reads is too little by what passes between the two clocks, never too much,
// so that the greatest that was ever read is the best, and time never runs ahead of the kernel's.
func (b *boottime) measure() {
	kernel := int64(b.kernel())
	least := kernel - int64(time.Since(b.base))
	for was := b.ahead.Load(); least > was; was = b.ahead.Load() {
		if b.ahead.CompareAndSwap(was, least) {
			return
		}
	}
}

func boottimeNow() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("the kernel has no CLOCK_BOOTTIME: " + err.Error()) // since Linux 2.6.39 it has
	}
	return time.Duration(t.Nano())
}
