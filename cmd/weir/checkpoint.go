package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket"
	"weir/bucket/fault"
)

// checkpointer keeps what the shared limits of one api have used where a restart finds it. What is kept claims ahead,
// so that a crash makes weir count too much, never too little.
type checkpointer struct {
	api   string
	store *bucket.Memory
	kv    jetstream.KeyValue
	log   *slog.Logger
	wake  chan struct{}

	tried    []byte // what was to be stored before, and may have been
	revision uint64 // of the checkpoint that this process read or stored last; 0 for none
}

// errCheckpointTaken says that another process counts the limits now: this one must not write over what it knows.
var errCheckpointTaken = errors.New("another process keeps the limits' state")

// A checkpoint is stored every second and covers two; when it cannot be stored, calls hold once it is used up.
const (
	checkpointEvery = time.Second
	checkpointAhead = 2 * time.Second
	checkpointWait  = 5 * time.Second
)

// newCheckpointer restores what a former process left. No slot is granted before run has stored a checkpoint.
func newCheckpointer(ctx context.Context, api string, store *bucket.Memory, kv jetstream.KeyValue, log *slog.Logger) (*checkpointer, error) {
	c := &checkpointer{api: api, store: store, kv: kv, log: log.With("component", "limits", "api", api), wake: make(chan struct{}, 1)}
	var s bucket.Snapshot
	entry, err := kv.Get(ctx, c.key())
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
	case err != nil:
		return nil, fmt.Errorf("limits of the last run: %w", err)
	default:
		c.revision = entry.Revision()
		if err := json.Unmarshal(entry.Value(), &s); err != nil {
			return nil, fmt.Errorf("limits of the last run (%s in %s) cannot be read: %w", c.key(), controlBucket, err)
		}
	}
	store.Restore(s)
	return c, nil
}

func (c *checkpointer) key() string { return checkpointKey(c.api) }

func checkpointKey(api string) string { return "limits." + api }

// now asks for a checkpoint at once. It does not block.
func (c *checkpointer) now() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run stores checkpoints until ctx ends, and then the last one, which is exact.
func (c *checkpointer) run(ctx context.Context) error {
	tick := time.NewTicker(checkpointEvery)
	defer tick.Stop()
	for {
		err := c.save(ctx, checkpointAhead)
		if errors.Is(err, errCheckpointTaken) {
			return err
		}
		if err != nil && ctx.Err() == nil {
			c.log.Warn("the limits' state could not be stored; calls hold until it can", "err", err)
		}
		select {
		case <-tick.C:
		case <-c.wake:
		case <-ctx.Done():
			return c.last(context.WithoutCancel(ctx))
		}
	}
}

// last stores the last checkpoint. The one before may have been given up on its way and be stored all the same: then the
// first try only finds that out.
func (c *checkpointer) last(ctx context.Context) (err error) {
	for range 2 {
		if err = c.save(ctx, 0); err == nil || errors.Is(err, errCheckpointTaken) {
			break
		}
	}
	return err
}

func (c *checkpointer) save(ctx context.Context, ahead time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, checkpointWait)
	defer cancel()
	s := c.store.Checkpoint(ahead)
	if len(s.Limit) == 0 {
		return nil // no limit is shared, for now
	}
	data, err := json.Marshal(s)
	if err != nil {
		panic("a checkpoint that JSON cannot carry: " + err.Error())
	}
	if err := c.put(ctx, data); err != nil {
		return err
	}
	fault.Pass(fault.LimitsStored)
	c.store.Saved(s)
	return nil
}

// put stores a checkpoint in the place of the one before, and of no other.
func (c *checkpointer) put(ctx context.Context, data []byte) error {
	revision, err := c.kv.Update(ctx, c.key(), data, c.revision)
	if err == nil {
		c.revision = revision
		return nil
	}
	now, lost := c.kv.Get(ctx, c.key())
	switch {
	case lost != nil:
		c.tried = data
		return fmt.Errorf("checkpoint: %w", err)
	case bytes.Equal(now.Value(), data):
		c.revision = now.Revision() // stored, only the answer was lost
		return nil
	case now.Revision() != c.revision && !bytes.Equal(now.Value(), c.tried):
		return errCheckpointTaken
	}
	c.revision, c.tried = now.Revision(), data
	return fmt.Errorf("checkpoint: %w", err)
}
