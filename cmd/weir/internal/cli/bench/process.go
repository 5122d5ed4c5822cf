package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is what the kernel counts a process's time in; it is the same on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// cpuOf is what a process has used so far, user and system; false where the system does not tell.
func cpuOf(pid int) (used time.Duration, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	_, rest, ok := bytes.Cut(text, []byte(") ")) // the name before may have blanks
	fields := strings.Fields(string(rest))
	if !ok || len(fields) < 13 {
		return 0, false
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * tick, err1 == nil && err2 == nil
}

// residentOf is how many bytes of a process are in memory; false where the system does not tell.
func residentOf(pid int) (size int64, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "VmRSS:"); found {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kib << 10, err == nil
		}
	}
	return 0, false
}
