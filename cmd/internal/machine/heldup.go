package machine

import (
	"sync"
	"sync/atomic"
	"time"
)

// HeldUp measures the longest time that the machine lets a runnable process wait. The time stamp of a call may be late
// by this much. It is safe for concurrent use.
type HeldUp struct {
	most   atomic.Int64 // nanoseconds
	ending chan struct{}
	done   sync.WaitGroup
}

// MeasureHeldUp starts a measurement, which runs until Stop.
func MeasureHeldUp() *HeldUp {
	const nap = 2 * time.Millisecond
	h := &HeldUp{ending: make(chan struct{})}
	h.done.Go(func() {
		timer := time.NewTimer(nap)
		defer timer.Stop()
		for start := time.Now(); ; start = time.Now() {
			select {
			case <-timer.C:
			case <-h.ending:
				return
			}
			h.most.Store(max(h.most.Load(), int64(time.Since(start)-nap)))
			timer.Reset(nap)
		}
	})
	return h
}

// Worst returns the longest wait so far.
func (h *HeldUp) Worst() time.Duration { return time.Duration(h.most.Load()) }

// Stop ends the measurement and waits for that. It must be called once.
func (h *HeldUp) Stop() {
	close(h.ending)
	h.done.Wait()
}
