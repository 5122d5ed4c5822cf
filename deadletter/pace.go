package deadletter

import (
	"context"
	"fmt"
	"sync"
	"time"

	"weir/bucket/stream"
)

// pace lets one after another go, at even intervals. It is safe for concurrent use; the zero value does not wait.
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

// rest blocks for d, or until ctx ends.
func rest(ctx context.Context, d time.Duration) error {
	if !stream.Sleep(ctx, d) {
		return fmt.Errorf("stopped: %w", context.Cause(ctx))
	}
	return nil
}
