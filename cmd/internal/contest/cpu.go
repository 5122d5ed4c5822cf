package contest

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Tick is the unit in which the kernel counts a process's time. It is the same on every Linux that Go runs on.
const Tick = 10 * time.Millisecond

// deepest bounds how many parents of a process are looked at.
const deepest = 16

// CPU returns what processes, their children and all that these have waited for have used so far, user and system. It
// reports false if the system does not tell of each of them.
func CPU(pids ...int) (used time.Duration, ok bool) {
	type entry struct {
		parent int
		ticks  int64
	}
	all := map[int]entry{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // fails for a bad pattern only
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended: its parent tells of it
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		end := strings.LastIndex(string(text), ") ") // the name before may have blanks
		fields := strings.Fields(string(text[end+1:]))
		if len(fields) < 15 {
			continue
		}
		e := entry{}
		e.parent, _ = strconv.Atoi(fields[1])
		for _, field := range fields[11:15] { // user and system time, its own and of children that it has waited for
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
