package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"weir/bucket"
	"weir/bucket/stream"
	"weir/dispatcher/schedule"

	"github.com/nats-io/nats.go/jetstream"
)

// Options are what a Board needs. All are required.
type Options struct {
	JetStream jetstream.JetStream
	Control   jetstream.KeyValue
	Instance  string // this replica's name
	Session   string // names this process among all that ever ran
	Now       func() bucket.Micros
	// Replicas returns how many replicas dispatch, this one included.
	Replicas func() int
	Log      *slog.Logger
}

// Board follows the entries of all apis. It is safe for concurrent use.
type Board struct {
	Options

	mu      sync.Mutex // guards what follows
	seen    map[string]sighting
	tellers map[string]*Teller
	newest  uint64        // the newest revision that is in force
	read    chan struct{} // closed and made anew when newest grows
}

// sighting is an api's entry as it was seen last.
type sighting struct {
	entry
	revision uint64
	found    schedule.Finding // what it says, by this process's clock
	received time.Time        // when the revision was received
}

// NewBoard returns a Board that has read nothing.
func NewBoard(o Options) *Board {
	o.Log = o.Log.With("component", "fleet")
	return &Board{Options: o, seen: map[string]sighting{}, tellers: map[string]*Teller{}, read: make(chan struct{})}
}

// watchRetry is how long Run waits before it watches again.
const watchRetry = 500 * time.Millisecond

// Run follows the entries until ctx ends.
func (b *Board) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := b.watch(ctx); err != nil && ctx.Err() == nil {
			b.Log.Warn("cannot watch the holds of other replicas; those in force stay; trying again", "err", err)
			stream.Sleep(ctx, watchRetry)
		}
	}
}

// watch follows the entries until ctx ends or the watch breaks.
func (b *Board) watch(ctx context.Context) error {
	watcher, err := stream.WatchWhole(ctx, b.JetStream.Conn(), b.Control, prefix+">")
	if err != nil {
		return fmt.Errorf("watch the holds: %w", err)
	}
	defer func() { _ = watcher.Stop() }() // the watch has ended, or is no longer needed
	clock, err := b.serverClock(ctx)
	if err != nil {
		return err
	}
	for whole := false; ; {
		select {
		case e, open := <-watcher.Updates():
			switch {
			case !open:
				return errors.New("the watch of the holds has ended")
			case e == nil:
				whole = true
				b.clear(ctx)
			case whole:
				b.see(e, b.Now())
			default:
				b.see(e, clock(e.Created()))
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// serverClock returns a function that converts a time of the server's clock to this process's clock. The time that it
// returns is not in the future.
func (b *Board) serverClock(ctx context.Context) (func(time.Time) bucket.Micros, error) {
	ctx, cancel := context.WithTimeout(ctx, writeWait)
	defer cancel()
	s, err := b.JetStream.Stream(ctx, "KV_"+b.Control.Bucket())
	if err != nil {
		return nil, fmt.Errorf("ask the server for its time: %w", err)
	}
	now, server := b.Now(), s.CachedInfo().TimeStamp
	return func(t time.Time) bucket.Micros { return now.Add(-max(0, server.Sub(t))) }, nil
}

// see takes one entry that was written at the time at.
func (b *Board) see(e jetstream.KeyValueEntry, at bucket.Micros) {
	api, ok := apiOf(e.Key())
	b.mu.Lock()
	if s := b.seen[api]; ok && e.Revision() > s.revision {
		s = sighting{revision: e.Revision(), received: time.Now()}
		if e.Operation() == jetstream.KeyValuePut {
			s.entry = read(e.Value())
			s.found = s.finding(at)
		}
		b.seen[api] = s
	}
	t := b.tellers[api]
	b.mu.Unlock()
	if t != nil {
		t.learn()
	}
	b.advance(e.Revision())
}

// advance notes that a revision is in force.
func (b *Board) advance(revision uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if revision > b.newest {
		b.newest = revision
		close(b.read)
		b.read = make(chan struct{})
	}
}

// of returns an api's entry as it was seen last.
func (b *Board) of(api string) sighting {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen[api]
}

// wrote notes an entry that this process has written.
func (b *Board) wrote(api string, s sighting) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.revision > b.seen[api].revision {
		b.seen[api] = s
	}
}

// readWait bounds AwaitRead.
const readWait = 30 * time.Second

// AwaitRead blocks until this process has put in force the entries that the bucket's leader has now. It fails if that
// takes more than 30 seconds.
func (b *Board) AwaitRead(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readWait)
	defer cancel()
	m, err := stream.NewestEntry(ctx, b.JetStream.Conn(), b.Control.Bucket(), prefix+">")
	if err != nil || m == nil {
		return err
	}
	for {
		b.mu.Lock()
		done, more := b.newest >= m.Seq, b.read
		b.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return fmt.Errorf("read the holds of other replicas: %w", context.Cause(ctx))
		}
	}
}

// clear deletes the entries of apis that this process does not have, if they are older than any hold. Every start of a
// replica does that, so there are few entries of apis that were removed from the configuration.
func (b *Board) clear(ctx context.Context) {
	old := b.Now().Add(-2 * schedule.MostHold)
	b.mu.Lock()
	unused := map[string]uint64{}
	for api, s := range b.seen {
		if b.tellers[api] == nil && s.found.At != 0 && s.found.At < old {
			unused[api] = s.revision
		}
	}
	b.mu.Unlock()
	for api, revision := range unused {
		if err := b.Control.Delete(ctx, keyOf(api), jetstream.LastRevision(revision)); err != nil {
			b.Log.Debug("could not delete the hold of an api that is not configured", "api", api, "err", err)
		}
	}
}
