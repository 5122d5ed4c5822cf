package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"weir/bucket/lease"
	"weir/cmd/weir/internal/config"

	"github.com/nats-io/nats.go/jetstream"
)

// The keys of weir_control: notify.DESTINATION.lease and .position, callback.lease, callback.API.done.position and
// callback.API.dead.position. No name of a destination or of an api has a dot.
const (
	destinationPrefix = "notify."
	callbackPrefix    = "callback"
	leaseSuffix       = ".lease"
	positionSuffix    = ".position"
)

// parseFeed returns the api and the kind of a feed of ends from its name.
func parseFeed(name string) (api string, kind endKind) {
	api, word, _ := strings.Cut(name, ".")
	return api, endKind(word)
}

// entry is how far a feed has come, as weir_control has it. Of a feed that cannot resume single messages it has only
// Seq.
type entry struct {
	Seq     uint64    `json:"seq"`            // the newest message that need not be read again
	Open    []uint64  `json:"open,omitempty"` // messages at or before Seq that are neither accepted nor given up
	Unread  uint64    `json:"unread,omitempty"`
	Sure    uint64    `json:"sure,omitempty"` // see backlog
	UpTo    uint64    `json:"up_to,omitempty"`
	Oldest  time.Time `json:"oldest,omitzero"`        // when the oldest message was stored that is to be posted
	Failing time.Time `json:"failing_since,omitzero"` // the receiver, without a success since
	Why     string    `json:"why,omitempty"`
	GivenUp given     `json:"given_up,omitzero"` // since the position was noted first
}

func (s *sender) positionKey() string { return s.key + positionSuffix }

// begin reads where to go on, and returns the stream. If no position is noted it is the end of the stream: a receiver
// gets nothing from before it was configured.
func (s *sending) begin(ctx context.Context) (jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	source, err := s.JetStream.Stream(ctx, s.stream)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.stream, err)
	}
	s.taken = source.CachedInfo().State.LastSeq
	var e entry
	stored, err := s.Control.Get(ctx, s.positionKey())
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		// The replica that answered may lag: an entry that there is must not be overwritten.
		_, err = s.Control.Create(ctx, s.positionKey(), mustMarshal(entry{Seq: s.taken}))
	case err == nil && json.Unmarshal(stored.Value(), &e) == nil && e.Seq <= s.taken:
		s.goOn(e)
	case err == nil && s.resumes: // every end is to arrive, and a receiver knows those that it has
		s.taken = 0
	case err == nil: // a restored store has reused the numbers: what is before is not told again
	}
	if err != nil {
		return nil, fmt.Errorf("the position of %s: %w", s.key, err)
	}
	return source, nil
}

// IsCallbackPosition reports whether a key of the control bucket is that of a callback's position. A value that says
// nothing has the callback post again what is kept.
func IsCallbackPosition(key string) bool {
	return strings.HasPrefix(key, callbackPrefix+".") && strings.HasSuffix(key, positionSuffix)
}

// goOn continues where an earlier sender ended.
func (s *sending) goOn(e entry) {
	s.taken, s.resuming = e.Seq, e.Open
	for _, seq := range e.Open {
		s.progress.open = append(s.progress.open, mark{seq, e.Oldest, 1})
	}
	s.unread, s.sure, s.upTo = e.Unread, e.Sure, e.UpTo
	s.health.since, s.health.why, s.health.given = e.Failing, e.Why, e.GivenUp
}

// note stores how far the feed has come, unless that is stored or the lease was lost.
func (s *sending) note(ctx context.Context) error {
	if !s.valid() {
		return lease.ErrLeaseLost
	}
	var e entry
	if e.Seq, e.Open = s.place(s.resumes); s.resumes {
		since, why, given := s.health.state()
		e.GivenUp = given
		e.Unread, e.Sure, e.UpTo, e.Oldest = s.unread, s.sure, s.upTo, s.oldestAt().UTC()
		e.Failing, e.Why = since.UTC().Truncate(time.Second), why
	}
	value := mustMarshal(e)
	if string(value) == s.noted {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeWait)
	defer cancel()
	if _, err := s.Control.Put(ctx, s.positionKey(), value); err != nil {
		return fmt.Errorf("the position of %s: %w", s.key, err)
	}
	s.noted = string(value)
	return nil
}

// forget deletes the position: a receiver that is configured again does not get what happened meanwhile.
func (s *sender) forget(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeWait)
	defer cancel()
	if err := s.Control.Delete(ctx, s.positionKey()); err != nil {
		return fmt.Errorf("the position of %s: %w", s.key, err)
	}
	return nil
}

// forgetRemoved deletes the positions of destinations that were removed from the configuration while no replica ran. It
// takes their leases: a replica may already follow a configuration that names them.
func (s *Senders) forgetRemoved(ctx context.Context) error {
	names, err := positions(ctx, s.Control, destinationPrefix, "*")
	if err != nil {
		return err
	}
	for name := range names {
		if s.configuredDestination(name) != nil {
			continue
		}
		removed := &sender{Senders: s, key: destinationPrefix + name}
		l, err := lease.AcquireLease(ctx, s.Control, removed.key+leaseSuffix, s.Instance)
		if held := (*lease.HeldError)(nil); errors.As(err, &held) {
			continue // a replica sends to it
		} else if err != nil {
			return err
		}
		release, done := context.WithCancel(ctx)
		done()
		if err := errors.Join(removed.forget(ctx), l.Keep(release)); err != nil {
			return err
		}
	}
	return nil
}

// forgetCallbacks deletes the positions of callbacks that are not configured. The caller holds the lease of callbacks.
func (s *Senders) forgetCallbacks(ctx context.Context) error {
	names, err := positions(ctx, s.Control, callbackPrefix+".", "*.*")
	if err != nil {
		return err
	}
	for name := range names {
		if api, _ := parseFeed(name); s.configuredCallback(api) == nil {
			if err := (&sender{Senders: s, key: callbackPrefix + "." + name}).forget(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// positions returns the names for which positions are noted.
func positions(ctx context.Context, kv jetstream.KeyValue, prefix, names string) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	keys, err := kv.ListKeysFiltered(ctx, prefix+names+positionSuffix)
	if err != nil {
		return nil, fmt.Errorf("the positions of receivers: %w", err)
	}
	defer func() { _ = keys.Stop() }()
	noted := map[string]bool{}
	for key := range keys.Keys() {
		noted[strings.TrimSuffix(strings.TrimPrefix(key, prefix), positionSuffix)] = true
	}
	return noted, ctx.Err()
}

// Begin notes where the callbacks of a configuration begin that have no position yet: at the ends of the streams. It
// must return before a job ends under that configuration, or the callback misses that end.
func Begin(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, c *config.Config) error {
	feeds := (&Senders{Options: Options{Configured: func() *config.Config { return c }}}).feeds()
	if len(feeds) == 0 {
		return nil
	}
	noted, err := positions(ctx, kv, callbackPrefix+".", "*.*")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	last := map[string]uint64{}
	for _, kind := range endKinds() {
		source, err := js.Stream(ctx, kind.stream())
		switch {
		case err == nil:
			last[kind.stream()] = source.CachedInfo().State.LastSeq
		case !errors.Is(err, jetstream.ErrStreamNotFound): // otherwise no job has ended
			return fmt.Errorf("where callbacks begin: %w", err)
		}
	}
	for _, name := range feeds {
		if noted[name] {
			continue
		}
		_, kind := parseFeed(name)
		_, err := kv.Create(ctx, callbackPrefix+"."+name+positionSuffix, mustMarshal(entry{Seq: last[kind.stream()]}))
		if err != nil && !errors.Is(err, jetstream.ErrKeyExists) { // another replica was first
			return fmt.Errorf("the position of callback %s: %w", name, err)
		}
	}
	return nil
}
