package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/connect"
)

// How long a replica that begins a lease waits to hear what was said before, until it begins another one, and how often it looks.
const (
	heardWait = 10 * time.Second
	heardPoll = 5 * time.Millisecond
)

// mayBegin is asked when a lease has begun and before anything is called by it. A replica that was stopped, or cut off, goes
// on here: pauses and configurations that were in force everywhere else by then must be so here too.
func (w *Worker) mayBegin(ctx context.Context) error {
	if err := w.stillHere(ctx); err != nil {
		return err
	}
	err := w.awaitHeard(ctx, connect.ControlBucket, pausePrefix+">", w.pauses.heard.Load)
	if err != nil {
		return fmt.Errorf("the pauses: %w", err)
	}
	if err := w.awaitHeard(ctx, connect.ConfigBucket, currentKey, w.follower.seen.Load); err != nil {
		return fmt.Errorf("the configuration: %w", err)
	}
	return nil
}

var errNotHeard = errors.New("what was said last has not been put in force")

// awaitHeard returns when the newest entry of a key-value bucket's keys has been heard.
func (w *Worker) awaitHeard(ctx context.Context, kv, keys string, heard func() uint64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, heardWait, errNotHeard)
	defer cancel()
	newest, err := stream.AskLeader(ctx, w.nc, "KV_"+kv, fmt.Sprintf(`{"last_by_subj":"$KV.%s.%s"}`, kv, keys))
	if err != nil || newest == nil {
		return err
	}
	tick := time.NewTicker(heardPoll)
	defer tick.Stop()
	for heard() < newest.Seq {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
