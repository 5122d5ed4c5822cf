package contest

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Tick is the unit in which the kernel counts a process's CPU time. It is the same on every Linux that Go supports.
const Tick = 10 * time.Millisecond

// deepest bounds how many ancestors of a process CPU looks at.
const deepest = 16

// CPU returns the user and system time that processes and their descendants have used so far, including ended children
// that they have waited for. ok is false if the system does not show each of the processes.
func CPU(pids ...int) (used time.Duration, ok bool) {
	type entry struct {
		parent int
		ticks  int64
	}
	all := map[int]entry{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // fails only for a bad pattern
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended: its parent's times include it
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		end := strings.LastIndex(string(text), ") ") // the program's name before it may contain blanks
		fields := strings.Fields(string(text[end+1:]))
		if len(fields) < 15 {
			continue
		}
		e := entry{}
		e.parent, _ = strconv.Atoi(fields[1])
		for _, field := range fields[11:15] { // user and system time, its own and that of children it has waited for
			n, _ := strconv.ParseInt(field, 10, 64)
			e.ticks += n
		}
		all[pid] = e
	}
	for pid, e := range all {
		for at, depth := pid, 0; at > 1 && depth < deepest; at, depth = all[at].parent, depth+1 {
			if slices.Contains(pids, at) {
				used += time.Duration(e.ticks) * Tick
				break
			}
		}
	}
	ok = len(pids) > 0
	for _, pid := range pids {
		_, there := all[pid]
		ok = ok && there
	}
	return used, ok
}
