package httpcall

import (
	"context"
	"time"
)

// A process that was stopped finds, when it goes on, that a call's time is up and that the answer is in the
// socket. Which of the two it sees first is chance. So a timeout that fires late, because the process did not
// run when it was due, leaves time to read what is there.
const (
	lateTimeout = 20 * time.Millisecond // a timer this late was held up by more than other work
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
