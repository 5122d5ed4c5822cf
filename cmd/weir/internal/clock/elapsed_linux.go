package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// elapsed is a time that nobody sets and that goes on while the machine is suspended.
func elapsed() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("the kernel has no CLOCK_BOOTTIME: " + err.Error()) // since Linux 2.6.39 it has
	}
	return time.Duration(t.Nano())
}
