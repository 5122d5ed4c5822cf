package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/bucket/lease"
	"weir/bucket/stream"
	"weir/cmd/weir/internal/config"

	"github.com/nats-io/nats.go/jetstream"
)

// Parts of the keys in weir_control: notify.DESTINATION.lease and .position, callback.lease, callback.API.done.position
// and callback.API.dead.position. Names of destinations and apis have no dots.
const (
	destinationPrefix = "notify."
	callbackPrefix    = "callback"
	leaseSuffix       = ".lease"
	positionSuffix    = ".position"
)

// parseFeed splits the name of a feed of ends into its api and its kind.
func parseFeed(name string) (api string, kind endKind) {
	api, word, _ := strings.Cut(name, ".")
	return api, endKind(word)
}

// entry is the position of a feed, as weir_control stores it. If a feed cannot resume single messages, its entry has
// only Seq.
type entry struct {
	Seq     uint64     `json:"seq"`            // the newest message that need not be read again
	Open    []underWay `json:"open,omitempty"` // messages at or before Seq that are neither accepted nor given up
	Unread  uint64     `json:"unread,omitempty"`
	Sure    uint64     `json:"sure,omitempty"` // see backlog
	UpTo    uint64     `json:"up_to,omitempty"`
	Failing time.Time  `json:"failing_since,omitzero"` // since when the receiver has accepted no post
	Why     string     `json:"why,omitempty"`
	GivenUp given      `json:"given_up,omitzero"` // what was given up since the position was first stored
	Begun   uint64     `json:"begun,omitempty"`   // the newest known version of the configuration that has the callback
	From    uint64     `json:"from,omitempty"`    // the first message since the callback was last configured; 0: unknown
}

// oldest returns when the oldest message in Open was stored, zero if there is none.
func (e *entry) oldest() time.Time {
	if len(e.Open) == 0 {
		return time.Time{}
	}
	return e.Open[0].At
}

func (s *sender) positionKey() string { return s.key + positionSuffix }

// position returns the stored position, nil if there is none. It asks the stream's leader, because a lagging replica of
// the stream could lack the position, or have an earlier one. From an earlier one, ends would be posted again.
func (s *sender) position(ctx context.Context) (*noted, error) {
	m, err := stream.NewestEntry(ctx, s.JetStream.Conn(), s.Control.Bucket(), s.positionKey())
	if err != nil || m == nil || m.Deleted() {
		return nil, err
	}
	return &noted{m.Data, m.Seq}, nil
}

// begin reads the position, and returns the stream. If no position is stored, the feed begins at the end of the stream:
// a receiver gets nothing from before it was configured.
func (s *sending) begin(ctx context.Context) (jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	source, err := s.JetStream.Stream(ctx, s.stream)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.stream, err)
	}
	s.taken = source.CachedInfo().State.LastSeq
	var e entry
	stored, err := s.position(ctx)
	switch {
	case err == nil && stored == nil:
		if s.resumes { // Begin stored a position for this feed
			s.begun = s.Version()
			s.health.forgetUpTo(s.taken)
			s.log.Warn("the position of the callback is missing: weir does not post ends from before now", "seq", s.taken)
		}
		s.revision, err = s.Control.Create(ctx, s.positionKey(), mustMarshal(s.entry()))
	case err == nil:
		s.revision = stored.revision
		switch readable := json.Unmarshal(stored.value, &e) == nil; {
		case readable && e.Seq <= s.taken:
			s.goOn(e)
		case s.resumes: // every end must arrive, and a receiver recognizes ends that it already has
			s.taken, s.begun, s.from = 0, e.Begun, 1
		default: // a restored store reuses sequences: events before now are not posted again
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the position of %s: %w", s.key, err)
	}
	return source, nil
}

// IsCallbackPosition reports whether a key of weir_control is that of a callback's position. If the key's value is
// empty, the callback posts all stored ends again.
func IsCallbackPosition(key string) bool {
	return strings.HasPrefix(key, callbackPrefix+".") && strings.HasSuffix(key, positionSuffix)
}

// goOn continues from the position of an earlier sender.
func (s *sending) goOn(e entry) {
	s.taken, s.resuming, s.begun, s.from = e.Seq, e.Open, e.Begun, e.From
	for _, o := range e.Open {
		s.open = append(s.open, mark{o.Seq, o.At, 1})
	}
	s.unread, s.sure, s.upTo = e.Unread, e.Sure, e.UpTo
	s.health.since, s.health.why, s.health.given = e.Failing, e.Why, e.GivenUp
}

// note stores the position, unless the same position is already stored. It fails if the lease was lost. A sender that
// has lost the lease may still have an update on its way. The server refuses that update because of its revision.
func (s *sending) note(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeWait)
	defer cancel()
	for try := 1; ; try++ {
		if !s.valid() {
			return errInDoubt
		}
		value := mustMarshal(s.entry())
		if string(value) == s.noted {
			return nil
		}
		revision, err := s.Control.Update(ctx, s.positionKey(), value, s.revision)
		switch {
		case err == nil:
			s.revision, s.noted = revision, string(value)
			return nil
		case try < mostNotes && errors.Is(err, jetstream.ErrKeyRevisionMismatch):
			err = s.reread(ctx)
		}
		if err != nil {
			return fmt.Errorf("the position of %s: %w", s.key, err)
		}
	}
}

// mostNotes bounds the tries to store a position that other replicas change at the same time.
const mostNotes = 3

// entry returns the present position of the feed.
func (s *sending) entry() (e entry) {
	if e.Seq, e.Open = s.place(s.resumes); s.resumes {
		since, why, given := s.health.state()
		// Open may still contain an end that was given up, until its delivery returns. The list of given-up ends contains it
		// already, so a start after a kill must not post it.
		e.Open = slices.DeleteFunc(e.Open, func(o underWay) bool { _, isGivenUp := given.find(o.Seq); return isGivenUp })
		e.Unread, e.Sure, e.UpTo, e.GivenUp, e.Begun, e.From = s.unread, s.sure, s.upTo, given, s.begun, s.from
		e.Failing, e.Why = since.UTC().Truncate(time.Second), why
	}
	return e
}

// reread takes over a change of the stored position. Another replica made the change because it follows a newer
// configuration that also has the callback. Or the change is the sender's own, and only the answer was lost.
func (s *sending) reread(ctx context.Context) error {
	stored, err := s.position(ctx)
	if err == nil && stored == nil {
		s.revision, err = s.Control.Create(ctx, s.positionKey(), mustMarshal(s.entry()))
		return err
	} else if err != nil {
		return err
	}
	var e entry
	if json.Unmarshal(stored.value, &e) == nil {
		s.begun = max(s.begun, e.Begun)
	}
	s.revision = stored.revision
	return nil
}

// forget deletes the position. So if the receiver is configured again later, it does not get the messages of the time
// between. forget returns how many messages waited. It keeps the position if a newer configuration, which this replica
// does not follow yet, has the receiver.
func (s *sender) forget(ctx context.Context) (waited uint64, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeWait)
	defer cancel()
	var e entry
	stored, err := s.position(ctx)
	switch {
	case err == nil && stored == nil:
		return 0, nil
	case err == nil && json.Unmarshal(stored.value, &e) == nil && e.Begun >= s.Version():
		return 0, nil
	case err == nil:
		err = s.Control.Delete(ctx, s.positionKey(), jetstream.LastRevision(stored.revision))
	}
	if err != nil {
		return 0, fmt.Errorf("the position of %s: %w", s.key, err)
	}
	return uint64(len(e.Open)) + e.Unread, nil
}

// forgetRemoved deletes the positions of destinations that were removed from the configuration while no replica ran. It
// first takes the lease of such a destination, because another replica may already follow a configuration that has the
// destination again.
func (s *Senders) forgetRemoved(ctx context.Context) error {
	all, err := positions(ctx, s.Control, destinationPrefix, "*")
	if err != nil {
		return err
	}
	for name := range all {
		if s.configuredDestination(name) != nil {
			continue
		}
		removed := &sender{Senders: s, key: destinationPrefix + name}
		l, err := lease.AcquireLease(ctx, s.JetStream.Conn(), s.Control, removed.key+leaseSuffix, s.Instance)
		if held := (*lease.HeldError)(nil); errors.As(err, &held) {
			continue // another replica sends to the destination
		} else if err != nil {
			return err
		}
		release, done := context.WithCancel(ctx)
		done()
		_, err = removed.forget(ctx)
		if err := errors.Join(err, l.Keep(release)); err != nil {
			return err
		}
	}
	return nil
}

// forgetCallbacks deletes the positions of callbacks that are not configured. The caller must hold the lease of
// callbacks.
func (s *Senders) forgetCallbacks(ctx context.Context) error {
	all, err := positions(ctx, s.Control, callbackPrefix+".", "*.*")
	if err != nil {
		return err
	}
	for name := range all {
		if api, kind := parseFeed(name); s.configuredCallback(api) == nil {
			d := &sender{Senders: s, key: callbackPrefix + "." + name, log: s.Log.With("api", api, "end", string(kind))}
			if err := d.forgetFeed(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// forgetFeed deletes the position of a callback's feed, and logs how many ends waited.
func (s *sender) forgetFeed(ctx context.Context) error {
	waited, err := s.forget(ctx)
	if waited > 0 {
		s.log.Warn("the callback was removed from the configuration; weir drops the ends that waited for it", "count", waited)
	}
	return err
}

// noted is the stored value of a position.
type noted struct {
	value    []byte
	revision uint64
}

// positions returns the stored positions, by the name of the feed.
func positions(ctx context.Context, kv jetstream.KeyValue, prefix, names string) (map[string]noted, error) {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	watcher, err := kv.Watch(ctx, prefix+names+positionSuffix)
	if err != nil {
		return nil, fmt.Errorf("the positions of receivers: %w", err)
	}
	defer func() { _ = watcher.Stop() }() // an error means that the watch has ended already
	all := map[string]noted{}
	for {
		select {
		case stored, open := <-watcher.Updates():
			switch {
			case !open:
				return nil, errors.New("the positions of receivers: the watch has ended")
			case stored == nil: // all present positions were delivered
				return all, nil
			case stored.Operation() != jetstream.KeyValuePut:
				continue
			}
			name := strings.TrimSuffix(strings.TrimPrefix(stored.Key(), prefix), positionSuffix)
			all[name] = noted{stored.Value(), stored.Revision()}
		case <-ctx.Done():
			return nil, fmt.Errorf("the positions of receivers: %w", context.Cause(ctx))
		}
	}
}

// Begin stores a position for each callback of a configuration that has none yet. The position is the end of the
// stream. In existing positions Begin stores the version of the configuration, so that a replica with an earlier
// version does not delete them. Begin must return before a job ends under the configuration; otherwise the callback
// would miss that job's end.
func Begin(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, c *config.Config, version uint64) error {
	feeds := (&Senders{Options: Options{Configured: func() *config.Config { return c }}}).feeds()
	if len(feeds) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	last := map[string]uint64{}
	for _, kind := range endKinds() {
		source, err := js.Stream(ctx, kind.stream())
		switch {
		case err == nil:
			last[kind.stream()] = source.CachedInfo().State.LastSeq
		case !errors.Is(err, jetstream.ErrStreamNotFound): // without the stream no job has ended
			return fmt.Errorf("where callbacks begin: %w", err)
		}
	}
	for try := 1; ; try++ {
		all, err := positions(ctx, kv, callbackPrefix+".", "*.*")
		if err != nil {
			return err
		}
		again := false
		for _, name := range feeds {
			_, kind := parseFeed(name)
			key, e := callbackPrefix+"."+name+positionSuffix, entry{}
			present, ok := all[name]
			if ok && (json.Unmarshal(present.value, &e) != nil || e.Begun >= version) {
				continue
			}
			if e.Begun = version; ok {
				_, err = kv.Update(ctx, key, mustMarshal(e), present.revision)
			} else {
				e.Seq = last[kind.stream()]
				e.From = e.Seq + 1
				_, err = kv.Create(ctx, key, mustMarshal(e))
			}
			switch {
			case errors.Is(err, jetstream.ErrKeyRevisionMismatch), errors.Is(err, jetstream.ErrKeyExists):
				again = true // another replica has changed the position
			case err != nil:
				return fmt.Errorf("the position of callback %s: %w", name, err)
			}
		}
		if !again { // each callback has a position
			return nil
		}
		if try == mostBegins {
			return errBusy
		}
		stream.Sleep(ctx, beginAgain)
	}
}

// errBusy reports that Begin could not store all positions.
var errBusy = errors.New("the positions of callbacks change all the time: start again, or apply the configuration again")

// Bounds of Begin if other replicas change positions meanwhile, or the replica of the bucket that lists them lags.
const (
	mostBegins = 60
	beginAgain = 50 * time.Millisecond // until they are read again
)
