package limitstate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket"
	"weir/bucket/fault"
	"weir/bucket/stream"
	"weir/cmd/weir/internal/serve/clock"
	"weir/dispatcher/ledger"
)

// checkpointer stores what the limits of one unit have used, for the next start. A stored checkpoint also covers what
// will be granted soon, so after a crash weir counts too much, never too little.
type checkpointer struct {
	of    unit
	store *bucket.Memory
	clock *clock.Clock
	nc    *nats.Conn
	kv    jetstream.KeyValue
	log   *slog.Logger
	wake  chan struct{}

	accounts *accounts // nil only in tests of checkpoints

	tried    map[[sha256.Size]byte]struct{} // checksums of the checkpoints tried since the last success: each of them may have been stored
	revision uint64                         // of the stored checkpoint, which the next one replaces; 0: no checkpoint is stored
	own      uint64                         // of the checkpoint that this process read or stored last
	bare     bool                           // the stored checkpoint contains no limit
	restored bucket.Snapshot                // what the former process left
	early    time.Duration                  // how far the former process's clock was ahead of this one's
	ahead    bucket.Micros                  // how far the calendars were ahead of the clock when the limits were last told
	moved    func(by time.Duration)         // called when the calendars were set
	news     news
}

// forgotten replaces the checkpoint of an account that is no longer configured. The account's former apis are from then
// on called without its limits.
const forgotten = "{}"

// errCheckpointTaken reports that another process counts the limits now. This process must not overwrite the checkpoint
// of that process.
var errCheckpointTaken = errors.New("another process keeps the limits' state")

// A checkpoint is stored every second and covers what is granted within the next two seconds. If no newer checkpoint
// can be stored, calls wait when these two seconds are over.
const (
	checkpointEvery = time.Second
	checkpointAhead = 2 * time.Second
	checkpointWait  = 5 * time.Second
)

// mostTried bounds checkpointer.tried. It is an hour of checkpoints.
const mostTried = 4096

// newCheckpointer restores what a former process left. The limits grant no slot before run has stored a checkpoint.
func newCheckpointer(ctx context.Context, o *Options, u unit, store *bucket.Memory) (*checkpointer, error) {
	c := &checkpointer{
		of: u, store: store, clock: o.Clock, nc: o.Conn, kv: o.Control, log: u.log(o), wake: make(chan struct{}, 1),
		tried: map[[sha256.Size]byte]struct{}{}, ahead: o.Clock.Ahead(),
	}
	c.moved = func(by time.Duration) { c.news.calendarMoved(o, u.name, by) }
	if u.pool {
		c.moved = func(time.Duration) {} // each api of the account tells it
	}
	var s bucket.Snapshot
	last, err := c.last(ctx)
	if err != nil {
		return nil, fmt.Errorf("limits of the last run: %w", err)
	}
	c.revision, c.own = last.Seq, last.Seq
	if last.Seq == 0 || string(last.Data) == forgotten || json.Unmarshal(last.Data, &s) != nil {
		if s, err = c.unknown(ctx, o, last.Seq > 0 && string(last.Data) != forgotten); err != nil {
			return nil, err
		}
	}
	store.Ahead(c.ahead)
	if c.early = store.Restore(s); c.early > clockNoise && !u.pool {
		c.news.started(o, u.name, c.early)
	}
	c.restored, c.bare = s, len(s.Limit) == 0
	return c, c.strike(ctx, s)
}

// strike stores the restored checkpoint without the apis that have left the account. It must run before this process
// calls these apis. If this process then dies and the apis come back, the checkpoint shows that they were called
// outside the account.
func (c *checkpointer) strike(ctx context.Context, s bucket.Snapshot) error {
	left := func(api string) bool { return !slices.Contains(c.of.apis, api) }
	if !slices.ContainsFunc(s.APIs, left) {
		return nil
	}
	s.APIs = slices.DeleteFunc(slices.Clone(s.APIs), left)
	data, err := json.Marshal(s)
	if err != nil {
		panic("a checkpoint that JSON cannot carry: " + err.Error())
	}
	return c.put(ctx, data)
}

// unknown returns a snapshot that stands for a missing checkpoint: every rate counts as used up to the time of the
// ledger's newest record. If lost is true, a checkpoint existed and is lost or cannot be read. Then every rate counts
// as used up until now.
//
// If the unit is an account with any earlier call, all its permits also count as taken until one lease after the start
// of this process, because it is unknown how many calls ran at that start.
func (c *checkpointer) unknown(ctx context.Context, o *Options, lost bool) (s bucket.Snapshot, err error) {
	called, _, err := stream.End(ctx, c.nc, ledger.CallsStream, c.of.calls())
	var none *jetstream.APIError
	if errors.As(err, &none) && none.ErrorCode == jetstream.JSErrCodeStreamNotFound {
		return s, nil // only in tests of checkpoints
	} else if err != nil {
		return s, fmt.Errorf("ledger: %w", err)
	}
	switch now := c.clock.Now(); {
	case lost:
		c.log.Error("what the limits had used cannot be read: a rate counts as used up until now, and quotas and budgets are added up from the ledger",
			"key", c.key(), "bucket", c.kv.Bucket())
		s.Until = now + c.ahead
	case called.Seq > 0:
		s.Until = min(now, bucket.MicrosOf(called.Time)) + c.ahead
	}
	if !c.of.pool {
		return s, nil
	}
	before, err := c.of.hasCalls(ctx, o.JetStream)
	if before {
		s.Open, s.Lease = anyCalls, o.began()+c.of.rules.LeaseMicros()+c.ahead
	}
	return s, err
}

// anyCalls is more calls than any limit of calls in flight allows.
const anyCalls = 1 << 40

func (c *checkpointer) key() string { return checkpointKey(c.of.name) }

func checkpointKey(api string) string { return "limits." + api }

// now requests a checkpoint at once. It does not block.
func (c *checkpointer) now() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run stores checkpoints until ctx ends. Then it stores a last one, which claims no time in advance. Before ctx ends,
// run returns only if another process counts the limits now; the error is then errCheckpointTaken.
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
			c.log.Warn("could not store the state of the limits; calls wait until it is stored", "err", err)
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

// close stores the last checkpoint. If an earlier attempt timed out but was stored after all, the first try only finds
// the new revision, and the second try stores.
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
	if len(s.Limit) == 0 && c.bare { // no limit is shared at present
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

// follow tells the limits how far the calendars are ahead of the clock, and reports a step of more than a second.
func (c *checkpointer) follow() {
	ahead := c.clock.Ahead()
	c.store.Ahead(ahead)
	if by := c.ahead.Until(ahead); by.Abs() > clockNoise {
		c.ahead = ahead
		c.moved(by)
	}
}

// put stores a checkpoint if it replaces the one that this process knows. It returns errCheckpointTaken if another
// process has stored one since. If the stored checkpoint is older than this process's own, no other process has stored
// it: the server was set back, or it does not know yet that it no longer leads the stream.
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
		c.stored(now.Seq) // it was stored, and only the answer was lost
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

// last returns the stored checkpoint, with sequence 0 if there is none.
func (c *checkpointer) last(ctx context.Context) (stream.LeaderMessage, error) {
	return newestOf(ctx, c.nc, c.kv, c.key())
}

// newestOf returns the newest message of a key, with sequence 0 if there is none. The message of a deletion has no
// data. newestOf asks only the stream's leader. A lagging replica could return an older checkpoint or mark, or none at
// all, and weir would then grant again what was used since.
func newestOf(ctx context.Context, nc *nats.Conn, kv jetstream.KeyValue, key string) (stream.LeaderMessage, error) {
	m, err := stream.NewestEntry(ctx, nc, kv.Bucket(), key)
	if err != nil || m == nil {
		return stream.LeaderMessage{}, err
	}
	return *m, nil
}
