package fakeapi

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machineClock returns the id of the machine's boot, and the time on the monotonic clock that all processes share.
func machineClock() (boot string, mono time.Duration) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", 0
	}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return "", 0
	}
	return strings.TrimSpace(string(id)), time.Duration(ts.Nano())
}
