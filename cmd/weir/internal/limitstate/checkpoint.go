package limitstate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket"
	"weir/bucket/fault"
	"weir/bucket/stream"
	"weir/cmd/weir/internal/clock"
)

// checkpointer keeps what the shared limits of one api have used where a restart finds it. What is kept claims ahead,
// so that a crash makes weir count too much, never too little.
type checkpointer struct {
	api   string
	store *bucket.Memory
	clock *clock.Clock
	nc    *nats.Conn
	kv    jetstream.KeyValue
	log   *slog.Logger
	wake  chan struct{}

	accounts *accounts // nil in tests of checkpoints alone

	tried    map[[sha256.Size]byte]struct{} // what was to be stored since the last that was, and may be stored yet
	revision uint64                         // that the next one takes the place of; 0 for none
	own      uint64                         // of the checkpoint that this process read or stored last
	bare     bool                           // no limit is in what is stored
	restored bucket.Snapshot                // what the former process left
	early    time.Duration                  // by how much its clock was ahead of this one's
	ahead    bucket.Micros                  // by how much calendars were when the limits heard of it last
	moved    func(by time.Duration)         // calendars were set
	news     news
}

// errCheckpointTaken says that another process counts the limits now: this one must not write over what it knows.
var errCheckpointTaken = errors.New("another process keeps the limits' state")

// A checkpoint is stored every second and covers two; when it cannot be stored, calls hold once it is used up.
const (
	checkpointEvery = time.Second
	checkpointAhead = 2 * time.Second
	checkpointWait  = 5 * time.Second
)

// mostTried bounds the checkpoints whose fate is not known: an hour of them.
const mostTried = 4096

// newCheckpointer restores what a former process left. No slot is granted before run has stored a checkpoint.
func newCheckpointer(ctx context.Context, o *Options, api string, store *bucket.Memory) (*checkpointer, error) {
	c := &checkpointer{
		api: api, store: store, clock: o.Clock, nc: o.Conn, kv: o.Control, log: o.Log.With("component", "limits", "api", api), wake: make(chan struct{}, 1),
		tried: map[[sha256.Size]byte]struct{}{}, ahead: o.Clock.Ahead(),
	}
	c.moved = func(by time.Duration) { c.news.calendarMoved(o, api, by) }
	var s bucket.Snapshot
	last, err := c.last(ctx)
	if err != nil {
		return nil, fmt.Errorf("limits of the last run: %w", err)
	}
	if last.Seq > 0 {
		c.revision, c.own = last.Seq, last.Seq
		if err := json.Unmarshal(last.Data, &s); err != nil {
			return nil, fmt.Errorf("limits of the last run (%s in %s) cannot be read: %w", c.key(), c.kv.Bucket(), err)
		}
	}
	store.Ahead(c.ahead)
	if c.early = store.Restore(s); c.early > clockNoise {
		c.news.started(o, api, c.early)
	}
	c.restored, c.bare = s, len(s.Limit) == 0
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
	var accounts sync.WaitGroup
	defer accounts.Wait()
	reading, stop := context.WithCancel(ctx)
	defer stop()
	accounts.Go(func() { c.accounts.run(reading) })
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
		c.accounts.lookForPartial()
		select {
		case <-tick.C:
		case <-c.wake:
		case <-ctx.Done():
			return c.close(context.WithoutCancel(ctx))
		}
	}
}

// close stores the last checkpoint. The one before may have been given up on its way and be stored all the same: then the
// first try only finds that out.
func (c *checkpointer) close(ctx context.Context) (err error) {
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
	c.follow()
	s := c.store.Checkpoint(ahead)
	if len(s.Limit) == 0 && c.bare { // no limit is shared, for now
		c.store.Saved(s)
		return nil
	}
	data, err := json.Marshal(s)
	if err != nil {
		panic("a checkpoint that JSON cannot carry: " + err.Error())
	}
	if err := c.put(ctx, data); err != nil {
		return err
	}
	fault.Pass(fault.LimitsStored)
	c.bare = len(s.Limit) == 0
	c.store.Saved(s)
	return nil
}

// follow has calendars go by the wall clock.
func (c *checkpointer) follow() {
	ahead := c.clock.Ahead()
	c.store.Ahead(ahead)
	if by := c.ahead.Until(ahead); by.Abs() > clockNoise {
		c.ahead = ahead
		c.moved(by)
	}
}

// put stores a checkpoint in the place of the one before, and of no other. One that is older than what this process has
// stored itself was not put there by another: the server was set back, or does not know yet that it leads no more.
func (c *checkpointer) put(ctx context.Context, data []byte) error {
	revision, err := c.kv.Update(ctx, c.key(), data, c.revision)
	if err == nil {
		c.stored(revision)
		return nil
	}
	if len(c.tried) < mostTried {
		c.tried[sha256.Sum256(data)] = struct{}{}
	}
	now, lost := c.last(ctx)
	if lost != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	_, ours := c.tried[sha256.Sum256(now.Data)]
	switch {
	case bytes.Equal(now.Data, data):
		c.stored(now.Seq) // only the answer was lost
		return nil
	case now.Seq > c.own && !ours:
		return errCheckpointTaken
	}
	c.revision = now.Seq
	return fmt.Errorf("checkpoint: %w", err)
}

func (c *checkpointer) stored(revision uint64) {
	c.revision, c.own = revision, revision
	clear(c.tried)
}

// last is the checkpoint that is stored, with no sequence where there is none. Only the leader is asked: from a replica that
// lags a start would take an older one, and grant what has been used since.
func (c *checkpointer) last(ctx context.Context) (stream.LeaderMessage, error) {
	m, err := stream.AskLeader(ctx, c.nc, "KV_"+c.kv.Bucket(), fmt.Sprintf(`{"last_by_subj":"$KV.%s.%s"}`, c.kv.Bucket(), c.key()))
	if err != nil || m == nil {
		return stream.LeaderMessage{}, err
	}
	return *m, nil
}
