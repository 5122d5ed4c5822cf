package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"weir/bucket/stream"

	"github.com/nats-io/nats.go/jetstream"
)

// Lag is how far an api's callback is behind, by the positions that the posting replica stored.
type Lag struct {
	IsKnown bool      // false: a position is not known, and the other fields leave out the ends of that type
	Behind  uint64    // ends that are stored and not posted yet
	Oldest  time.Time // when the oldest of these ends was stored; zero: unknown
	Failing time.Time // since when the receiver has accepted no post; zero: it accepts posts
	Why     string    // why the receiver does not accept posts

	GivenUp    uint64 // ends that were given up, since the callback was configured
	GivenUpAt  time.Time
	GivenUpWhy string // why the last of these ends was given up
}

// Lag returns how far an api's callback is behind. ok is false if the api has no callback. It is safe for concurrent
// use.
func (s *Senders) Lag(api string) (lag Lag, ok bool) {
	if s.configuredCallback(api) == nil {
		return lag, false
	}
	lag.IsKnown = true
	for _, kind := range endKinds() {
		e, known := s.lags.of(api + "." + string(kind))
		lag.IsKnown = lag.IsKnown && known
		lag.add(e)
	}
	return lag, true
}

// add adds the position of one feed.
func (l *Lag) add(e entry) {
	l.Behind += uint64(len(e.Open)) + e.Unread
	if at := e.oldest(); !at.IsZero() && (l.Oldest.IsZero() || at.Before(l.Oldest)) {
		l.Oldest = at
	}
	l.GivenUp += e.GivenUp.Count
	if e.GivenUp.At.After(l.GivenUpAt) {
		l.GivenUpAt, l.GivenUpWhy = e.GivenUp.At, e.GivenUp.Why
	}
	if !e.Failing.IsZero() && (l.Failing.IsZero() || e.Failing.Before(l.Failing)) {
		l.Failing, l.Why = e.Failing, e.Why
	}
}

// lags holds the positions of the feeds of all callbacks. It is the same on all replicas, whichever replica posts.
type lags struct {
	mu    sync.Mutex // guards noted
	noted map[string]entry
}

// of returns the position of a feed. ok is false if the position is not known.
func (l *lags) of(feed string) (e entry, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok = l.noted[feed]
	return e, ok
}

// follow keeps the positions up to date until ctx ends.
func (l *lags) follow(ctx context.Context, kv jetstream.KeyValue, log *slog.Logger) {
	for ctx.Err() == nil {
		if err := l.watch(ctx, kv); err != nil && ctx.Err() == nil {
			log.Warn("cannot watch how far callbacks are behind; trying again", "err", err)
		}
		stream.Sleep(ctx, leaseRetry)
	}
}

// watch takes the present positions and all changes, until ctx or the watch ends. It drops positions that were deleted
// before the watch began.
func (l *lags) watch(ctx context.Context, kv jetstream.KeyValue) error {
	watcher, err := kv.Watch(ctx, callbackPrefix+".*.*"+positionSuffix)
	if err != nil {
		return err
	}
	defer func() { _ = watcher.Stop() }() // an error means that the watch has ended already
	present := map[string]struct{}{}
	for {
		select {
		case stored, open := <-watcher.Updates():
			if !open {
				return errors.New("the watch has ended")
			}
			if stored == nil { // all present positions were delivered
				l.keepOnly(present)
				present = nil
				continue
			}
			if name := l.take(stored); present != nil {
				present[name] = struct{}{}
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// keepOnly drops the positions of all feeds that named does not contain.
func (l *lags) keepOnly(named map[string]struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.noted, func(name string, _ entry) bool { _, in := named[name]; return !in })
}

// take notes a feed's position, or that it was deleted, and returns the feed's name.
func (l *lags) take(stored jetstream.KeyValueEntry) (name string) {
	name = strings.TrimSuffix(strings.TrimPrefix(stored.Key(), callbackPrefix+"."), positionSuffix)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.noted == nil {
		l.noted = map[string]entry{}
	}
	var e entry
	if stored.Operation() != jetstream.KeyValuePut || json.Unmarshal(stored.Value(), &e) != nil {
		delete(l.noted, name)
		return name
	}
	l.noted[name] = e
	return name
}
