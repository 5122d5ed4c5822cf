package httpcall

import (
	"context"
	"time"
)

// When a stopped process continues, a call's timeout may have passed while its answer is already in the socket. It is
// chance which of the two the process sees first. So a timeout that fires late, because the process did not run when it
// was due, leaves time to read the answer.
const (
	lateTimeout = 20 * time.Millisecond // a timer this late was delayed by more than other work
	readingTime = time.Second           // to read what is in the socket
)

// withTimeout ends a context after d, with errTimeout as its cause; up to readingTime later if the process could
// not run when that was due.
func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	due := time.Now().Add(d)
	timer := time.AfterFunc(d, func() {
		if time.Since(due) > lateTimeout {
			rest := time.NewTimer(readingTime)
			defer rest.Stop()
			select {
			case <-rest.C:
			case <-ctx.Done():
			}
		}
		cancel(errTimeout)
	})
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}
