package clock

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// elapsed returns the time of a clock that cannot be set and that counts the sleep of a suspended machine.
//
// Linux has CLOCK_BOOTTIME for that. Reading it takes a system call of 600 ns, and each call to an API reads the time
// several times. So elapsed adds the lead of CLOCK_BOOTTIME to Go's monotonic clock, which stops only while the machine
// is suspended.
func elapsed() time.Duration { return boot.now(time.Now()) }

var boot = newBoottime()

// boottime returns the time of CLOCK_BOOTTIME from the monotonic clock and the time that the machine was suspended. It
// is safe for concurrent use.
type boottime struct {
	base    time.Time            // start of the monotonic clock
	kernel  func() time.Duration // CLOCK_BOOTTIME
	ahead   atomic.Int64         // measured lead of CLOCK_BOOTTIME over the monotonic clock, in nanoseconds; it never shrinks
	wall    atomic.Int64         // lead of the wall clock at the last measurement of ahead
	checked atomic.Int64         // time of that measurement
}

// After a suspension the wall clock has advanced and the monotonic clock has not. If the difference between the two has
// changed by more than stirred, the lead is measured again. It is also measured every recheck, in case the wall clock
// was set back during a suspension.
const (
	stirred = time.Millisecond
	recheck = time.Second
)

func newBoottime() *boottime {
	b := &boottime{base: time.Now(), kernel: boottimeNow}
	b.ahead.Store(int64(b.kernel()) - int64(time.Since(b.base)))
	for range 10 { // the largest reading is the most exact one
		b.measure()
	}
	return b
}

func (b *boottime) now(t time.Time) time.Duration {
	passed := t.Sub(b.base)
	apart := time.Duration(t.UnixNano()-b.base.UnixNano()) - passed
	if (apart-time.Duration(b.wall.Load())).Abs() > stirred || passed-time.Duration(b.checked.Load()) > recheck {
		b.measure()
		// Stored last, because a goroutine that reads this value relies on the new value of ahead.
		b.wall.Store(int64(apart))
		b.checked.Store(int64(passed))
	}
	return passed + time.Duration(b.ahead.Load())
}

// measure reads the lead of CLOCK_BOOTTIME. A reading is too small by the time that passes between reading the two
// clocks, and never too large. So measure keeps the largest reading, and elapsed never runs ahead of the kernel's
// clock.
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
		panic("the kernel has no CLOCK_BOOTTIME: " + err.Error()) // Linux has it since 2.6.39
	}
	return time.Duration(t.Nano())
}
