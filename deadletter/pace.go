package deadletter

import (
	"context"
	"fmt"
	"sync"
	"time"

	"weir/bucket/stream"
)

// pace lets its callers pass one at a time, at even intervals. It is safe for concurrent use. The zero value never
// blocks.
type pace struct {
	every time.Duration
	mu    sync.Mutex // guards what follows
	next  time.Time
}

// wait blocks until it is the caller's turn, or ctx ends.
func (p *pace) wait(ctx context.Context) error {
	p.mu.Lock()
	now := time.Now()
	at := p.next
	if at.Before(now) {
		at = now
	}
	p.next = at.Add(p.every)
	p.mu.Unlock()
	return rest(ctx, at.Sub(now))
}

// due returns when the next caller may pass.
func (p *pace) due() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}

// inOneSecond returns how many callers may pass within a second, at least 1. It returns 0 if there is no bound.
func (p *pace) inOneSecond() int {
	if p.every <= 0 {
		return 0
	}
	return int(max(1, time.Second/p.every))
}

// rest blocks for d. It fails if ctx ends first.
func rest(ctx context.Context, d time.Duration) error {
	if !stream.Sleep(ctx, d) {
		return fmt.Errorf("stopped: %w", context.Cause(ctx))
	}
	return nil
}
