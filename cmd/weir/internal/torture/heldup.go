package torture

import (
	"sync"
	"sync/atomic"
	"time"
)

// heldUp measures for how long the machine lets a process wait that wants to run, at worst.
type heldUp struct {
	most   atomic.Int64 // nanoseconds
	ending chan struct{}
	done   sync.WaitGroup
}

func measureHeldUp() *heldUp {
	const nap = 2 * time.Millisecond
	h := &heldUp{ending: make(chan struct{})}
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

func (h *heldUp) worst() time.Duration { return time.Duration(h.most.Load()) }

func (h *heldUp) stop() {
	close(h.ending)
	h.done.Wait()
}
