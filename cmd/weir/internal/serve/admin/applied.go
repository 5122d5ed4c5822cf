package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/nats/connect"

	"github.com/nats-io/nats.go"
)

// Bounds of the wait for earlier commands to be put in force before a replica begins another lease, and how often it
// checks.
const (
	applyWait = 10 * time.Second
	applyPoll = 5 * time.Millisecond
)

// AwaitApplied returns when the server's newest pause is in force in this process.
func (p *Pauses) AwaitApplied(ctx context.Context) error {
	return awaitApplied(ctx, p.nc, p.kv.Bucket(), pausePrefix+">", p.appliedRevision)
}

// AwaitConfigApplied returns when this process has considered the newest version, by the revision that applied returns.
func AwaitConfigApplied(ctx context.Context, nc *nats.Conn, applied func() uint64) error {
	return awaitApplied(ctx, nc, connect.ConfigBucket, currentKey, applied)
}

var errNotApplied = errors.New("the newest version has not been put in force")

// awaitApplied returns when the newest entry of a key-value bucket's keys has been put in force, by the revision that
// applied returns. It fails if that takes longer than a few seconds.
func awaitApplied(ctx context.Context, nc *nats.Conn, kv, keys string, applied func() uint64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, applyWait, errNotApplied)
	defer cancel()
	newest, err := stream.AskLeader(ctx, nc, "KV_"+kv, fmt.Sprintf(`{"last_by_subj":"$KV.%s.%s"}`, kv, keys))
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
