package fakeapi

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machineClock reads the monotonic clock all processes of this machine share, and which start of the machine it belongs to.
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
