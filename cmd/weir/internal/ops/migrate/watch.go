package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"weir/dispatcher/ownership"
)

// lookEvery is how often a worker checks whether its jobs are being moved away. `weir move` waits until it sees no
// weir, but a worker that was suspended or cut off at that time may continue later.
const lookEvery = 2 * time.Second

// Watch returns an error when the jobs of this server are being moved away, and nil when ctx ends.
func Watch(ctx context.Context, nc *nats.Conn) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if err := CheckStillHere(ctx, nc); errors.Is(err, ownership.ErrElsewhere) {
			return err
		}
	}
}

// CheckStillHere fails with ErrElsewhere if the jobs of this server are being moved away, or were moved. It fails with
// another error if it cannot tell. It reads the note anew, so its answer is newer than a lease that the caller has just
// written.
func CheckStillHere(ctx context.Context, nc *nats.Conn) error {
	n, err := readNote(ctx, nc, leavingKey)
	if err != nil || n == nil { // there was no move, or it was taken back
		return err
	}
	return fmt.Errorf("%w: %w", ownership.ErrElsewhere, n.away())
}
