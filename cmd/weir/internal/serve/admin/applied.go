package admin

import (
	"context"
	"errors"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/nats/connect"

	"github.com/nats-io/nats.go"
)

// Before a replica begins to call under another lease, it waits until earlier commands are in force. It waits for
// applyWait at most, and checks every applyPoll.
const (
	applyWait = 10 * time.Second
	applyPoll = 5 * time.Millisecond
)

// AwaitApplied blocks until the newest pause or resumption in NATS is in force in this process. It fails after
// applyWait.
func (p *Pauses) AwaitApplied(ctx context.Context) error {
	return awaitApplied(ctx, p.nc, p.kv.Bucket(), pausePrefix+">", p.appliedRevision)
}

// AwaitConfigApplied blocks until this process has considered the newest version of the configuration in NATS. It fails
// after applyWait. applied returns the revision that the process has considered last.
func AwaitConfigApplied(ctx context.Context, nc *nats.Conn, applied func() uint64) error {
	return awaitApplied(ctx, nc, connect.ConfigBucket, currentKey, applied)
}

var errNotApplied = errors.New("the newest version has not been put in force")

// awaitApplied blocks until this process has applied the newest entry that matches keys in a key-value bucket. It fails
// after applyWait. applied returns the newest revision that the process has applied.
func awaitApplied(ctx context.Context, nc *nats.Conn, kv, keys string, applied func() uint64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, applyWait, errNotApplied)
	defer cancel()
	newest, err := stream.NewestEntry(ctx, nc, kv, keys)
	if err != nil || newest == nil {
		return err
	}
	tick := time.NewTicker(applyPoll)
	defer tick.Stop()
	for applied() < newest.Seq {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
