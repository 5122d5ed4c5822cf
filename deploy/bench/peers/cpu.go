//go:build linux

package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is what the kernel counts a process's time in; it is the same on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// cpuOf is what processes, their children and all that these have waited for have used so far, user and system.
func cpuOf(roots []*process) (used time.Duration) {
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
	counted := map[int]bool{}
	for _, p := range roots {
		counted[p.pid()] = true
	}
	for pid, e := range all {
		for at, depth := pid, 0; at > 1 && depth < 16; at, depth = all[at].parent, depth+1 {
			if counted[at] {
				used += time.Duration(e.ticks) * tick
				break
			}
		}
	}
	return used
}

// The time after a round in which its processes finish: writes that nobody waits for, and cleaning up.
const (
	look      = 200 * time.Millisecond
	quiet     = 10 * time.Millisecond // of CPU within a look
	settleFor = 5 * time.Second
)

// settle waits until processes do nothing more, or for five seconds, and returns what they have used by then.
func settle(ctx context.Context, all []*process) time.Duration {
	until := time.Now().Add(settleFor)
	used := cpuOf(all)
	timer := time.NewTimer(look)
	defer timer.Stop()
	for time.Now().Before(until) {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return used
		}
		now := cpuOf(all)
		if now-used <= quiet {
			return now
		}
		used = now
		timer.Reset(look)
	}
	return used
}
