//go:build linux

package main

import (
	"context"
	"time"

	"weir/cmd/internal/contest"
)

// The time after a round in which its processes finish: writes that nothing waits for, and cleaning up.
const (
	look      = 200 * time.Millisecond
	quiet     = contest.Tick // of CPU within a look
	settleFor = 5 * time.Second
)

func cpuOf(pids ...int) time.Duration {
	used, _ := contest.CPU(pids...) // a round of a process that has ended fails
	return used
}

// settle waits until processes do nothing more, or for five seconds, and returns what they have used by then.
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
