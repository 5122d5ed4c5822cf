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

	blind bool // the watch is broken, and a log line says so; only Run uses it
}

// sighting is an api's entry as it was seen last.
type sighting struct {
	entry
	revision uint64
	found    schedule.Finding // what the entry says, by this process's clock
	received time.Time        // when the revision was received
	claimed  time.Time        // when this process last saw that the claim of the probe was made or renewed
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
			if !b.blind {
				b.Log.Warn("cannot watch the holds of other replicas; those in force stay; trying again", "err", err)
			}
			b.blind = true
			stream.Sleep(ctx, watchRetry)
		}
	}
}

// watch follows the entries until ctx ends or the watch breaks. A copy of the bucket that lags may first show an older
// entry than the one in force, or none. So watch believes that an entry is older or gone only after it has seen all
// entries.
func (b *Board) watch(ctx context.Context) error {
	began := time.Now()
	watcher, err := stream.WatchWhole(ctx, b.JetStream.Conn(), b.Control, prefix+">")
	if err != nil {
		return fmt.Errorf("watch the holds: %w", err)
	}
	defer func() { _ = watcher.Stop() }() // the watch has ended, or is no longer needed
	clock, err := b.serverClock(ctx)
	if err != nil {
		return err
	}
	shown, last := map[string]sighting{}, uint64(0)
	for whole := false; ; {
		select {
		case e, open := <-watcher.Updates():
			switch {
			case !open:
				return errors.New("the watch of the holds has ended")
			case e == nil:
				whole, b.blind = true, false
				b.settle(shown, last, began)
				b.clear(ctx)
				continue
			case e.Revision() < last:
				return errors.New("the bucket of the holds was made anew")
			case whole:
				b.see(e, b.Now())
			default:
				at := clock(e.Created())
				if api, ok := apiOf(e.Key()); ok {
					shown[api] = newSighting(e.Revision(), e.Operation() == jetstream.KeyValuePut, e.Value(), at)
				}
				b.see(e, at)
			}
			last = e.Revision()
		case <-ctx.Done():
			return nil
		}
	}
}

// serverClock returns a function that converts a time of the server's clock to this process's clock. That function
// never returns a time in the future.
func (b *Board) serverClock(ctx context.Context) (func(time.Time) bucket.Micros, error) {
	ctx, cancel := context.WithTimeout(ctx, writeWait)
	defer cancel()
	s, err := b.JetStream.Stream(ctx, "KV_"+b.Control.Bucket())
	if err != nil {
		return nil, fmt.Errorf("ask the server for its time: %w", err)
	}
	now, server := b.Now(), s.CachedInfo().TimeStamp
	return func(t time.Time) bucket.Micros { return min(b.Now(), now.Add(t.Sub(server))) }, nil
}

// newSighting returns the sighting of a revision that was written at the time at. put is false if the entry was
// deleted.
func newSighting(revision uint64, put bool, value []byte, at bucket.Micros) sighting {
	s := sighting{revision: revision, received: time.Now()}
	if put {
		s.entry = read(value)
		s.found = s.finding(at)
	}
	s.claimed = s.received
	return s
}

// see puts one entry in force, which was written at the time at.
func (b *Board) see(e jetstream.KeyValueEntry, at bucket.Micros) {
	api, ok := apiOf(e.Key())
	if ok {
		b.wrote(api, newSighting(e.Revision(), e.Operation() == jetstream.KeyValuePut, e.Value(), at))
	}
	b.mu.Lock()
	t := b.tellers[api]
	b.mu.Unlock()
	if t != nil {
		t.learn()
	}
	b.advance(e.Revision())
}

// settle compares the entries that were in force when a watch began with those that the watch has shown. If the watch
// has shown an older entry, or none, the bucket was made anew or has lost entries. settle then puts in force what the
// watch has shown. newest is the newest revision that the watch has shown.
func (b *Board) settle(shown map[string]sighting, newest uint64, began time.Time) {
	b.mu.Lock()
	var lost []*Teller
	b.newest = newest
	for api, s := range b.seen {
		if present := shown[api]; present.revision < s.revision && s.received.Before(began) {
			b.seen[api] = present
			if t := b.tellers[api]; t != nil {
				lost = append(lost, t)
			}
		}
	}
	b.mu.Unlock()
	for _, t := range lost {
		t.sayLost()
		t.learn()
	}
}

// reread reads an api's entry from the bucket's leader, and replaces s by it, even if it is older or gone.
func (b *Board) reread(ctx context.Context, api string, s *sighting) error {
	ctx, cancel := context.WithTimeout(ctx, writeWait)
	defer cancel()
	clock, err := b.serverClock(ctx)
	if err != nil {
		return err
	}
	m, err := stream.NewestEntry(ctx, b.JetStream.Conn(), b.Control.Bucket(), keyOf(api))
	if err != nil {
		return err
	}
	var present sighting
	if m != nil {
		present = newSighting(m.Seq, !m.Deleted(), m.Data, clock(m.Time))
	}
	if present.revision == s.revision {
		return nil // as a new sighting it would look as if a claim had just been renewed
	}
	b.mu.Lock()
	replaces := b.seen[api].revision == s.revision // the watch has shown nothing meanwhile
	if replaces {
		b.seen[api] = present
	}
	t := b.tellers[api]
	b.mu.Unlock()
	if replaces && present.revision < s.revision && t != nil {
		t.sayLost()
	}
	return nil
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

// wrote notes an entry that this process or another has written. Only a write of the process that has the claim renews
// the claim.
func (b *Board) wrote(api string, s sighting) {
	b.mu.Lock()
	defer b.mu.Unlock()
	former := b.seen[api]
	if s.Probing == former.Probing && s.Session != s.Probing {
		s.claimed = former.claimed
	}
	if s.revision > former.revision {
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

// clear deletes the entries of apis that this process does not have, if they are older than any hold can be. A replica
// calls clear when it starts, so few entries of removed apis remain.
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
