package httpcall

import (
	"context"
	"time"
)

// When a stopped process continues, a call's timeout may have passed although its answer is already in the socket. It
// is chance which of the two the process notices first. So if a timeout fires late, because the process did not run
// when it was due, it leaves time to read the answer.
const (
	lateTimeout = 20 * time.Millisecond // a timer this late was delayed by more than other work
	readingTime = time.Second           // to read what is in the socket
)

// withTimeout returns a context that ends after d, with errTimeout as its cause. If the process could not run at that
// time, the context ends up to readingTime later. The returned function ends it at once.
func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelCauseFunc) {
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
	return ctx, func(cause error) {
		timer.Stop()
		cancel(cause)
	}
}
