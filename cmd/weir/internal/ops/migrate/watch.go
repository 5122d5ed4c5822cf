package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/stream"
	"weir/dispatcher/ownership"
)

// lookEvery is how often a worker checks whether its jobs are being moved away. `weir move` waits until no weir is
// visible, but a worker that was suspended or cut off at that time may continue later.
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
// another error if it cannot tell. It asks the stream's leader, because the answer must be newer than a lease that the
// caller has just written.
func CheckStillHere(ctx context.Context, nc *nats.Conn) error {
	msg, err := stream.AskLeader(ctx, nc, "KV_"+noteBucket, `{"last_by_subj":"$KV.`+noteBucket+`.`+leavingKey+`"}`)
	var api *jetstream.APIError
	switch {
	case errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamNotFound, err == nil && (msg == nil || len(msg.Data) == 0):
		return nil // no move, or one that was taken back
	case err != nil:
		return err
	}
	var n note
	if err := json.Unmarshal(msg.Data, &n); err != nil {
		return fmt.Errorf("the note of a move (%s in %s) cannot be read: %w", leavingKey, noteBucket, err)
	}
	return fmt.Errorf("%w: %w", ownership.ErrElsewhere, n.away())
}
