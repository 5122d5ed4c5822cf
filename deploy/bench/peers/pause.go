//go:build linux

package main

import (
	"sync"
	"sync/atomic"
	"time"
)

// pauses measures for how long the machine lets a process wait that wants to run, at worst: by so much the api may stamp a call too late,
// whenever it was sent. It is safe for concurrent use.
type pauses struct {
	most   atomic.Int64 // nanoseconds
	ending chan struct{}
	once   sync.Once
	done   sync.WaitGroup
}

// measurePauses begins to measure, until end.
func measurePauses() *pauses {
	const nap = 2 * time.Millisecond
	p := &pauses{ending: make(chan struct{})}
	p.done.Go(func() {
		timer := time.NewTimer(nap)
		defer timer.Stop()
		for begin := time.Now(); ; begin = time.Now() {
			select {
			case <-timer.C:
			case <-p.ending:
				return
			}
			p.most.Store(max(p.most.Load(), int64(time.Since(begin)-nap)))
			timer.Reset(nap)
		}
	})
	return p
}

// end ends the measuring and returns the longest pause.
func (p *pauses) end() time.Duration {
	p.once.Do(func() { close(p.ending) })
	p.done.Wait()
	return time.Duration(p.most.Load())
}
