//go:build unix && !linux

package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// elapsed returns the time of a clock that cannot be set.
func elapsed() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic("the system has no CLOCK_MONOTONIC: " + err.Error())
	}
	return time.Duration(t.Nano())
}
