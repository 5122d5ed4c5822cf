//go:build linux

package main

import (
	"context"
	"time"

	"weir/cmd/internal/contest"
)

// The time after a round in which its processes finish writes that nothing waits for, and clean up.
const (
	look      = 200 * time.Millisecond
	quiet     = contest.Tick // of CPU within a look
	settleFor = 5 * time.Second
)

func cpuOf(pids ...int) time.Duration {
	used, _ := contest.CPU(pids...) // if a process has ended, its round fails anyway
	return used
}

// settle waits until processes use almost no CPU, at most five seconds, and returns the CPU time that they have used.
func settle(ctx context.Context, pids []int) time.Duration {
	until := time.Now().Add(settleFor)
	used := cpuOf(pids...)
	timer := time.NewTimer(look)
	defer timer.Stop()
	for time.Now().Before(until) {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return used
		}
		now := cpuOf(pids...)
		if now-used <= quiet {
			return now
		}
		used = now
		timer.Reset(look)
	}
	return used
}
