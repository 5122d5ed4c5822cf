package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/stream"
)

// LeasesBucket is the key-value bucket of leases and claims:
//
//	member.<session>      a lease, and what its holder tells the others; renewed every second
//	part.<api>.<number>   the session that owns a partition; written when it is claimed and when it is released
//
// Every write names the revision that it replaces.
const LeasesBucket = "weir_leases"

const (
	memberPrefix = "member."
	claimPrefix  = "part."

	leasesStream  = "KV_" + LeasesBucket
	leasesSubject = "$KV." + LeasesBucket + "."

	headerOperation  = "KV-Operation"
	headerTTL        = "Nats-TTL"
	operationDeleted = "DEL"

	// endKept is how long the registry remembers that a lease has ended. Nothing depends on it: before a claim of a
	// forgotten session is taken, Expel ends the session once more.
	endKept = time.Hour
)

func memberKey(session string) string { return memberPrefix + session }

func claimKey(p PartitionID) string { return claimPrefix + p.API + "." + strconv.Itoa(p.Number) }

// Registry is where dispatching replicas find each other and learn which replica owns which partition. It is safe for
// concurrent use.
type Registry struct {
	js       jetstream.JetStream
	kv       jetstream.KeyValue
	presence Presence // nil: Gone knows of no process
}

// OpenRegistry creates the bucket if it does not exist.
func OpenRegistry(ctx context.Context, js jetstream.JetStream, replicas int) (*Registry, error) {
	kv, err := stream.EnsureBucket(ctx, js, jetstream.KeyValueConfig{
		Bucket: LeasesBucket, Description: "weir: which replica owns which partition", History: 1, Replicas: replicas, LimitMarkerTTL: endKept,
	}, nil)
	if err != nil {
		return nil, err
	}
	return &Registry{js: js, kv: kv}, nil
}

// FindRegistry returns the registry of a server, or nil if no replica has shared anything.
func FindRegistry(ctx context.Context, js jetstream.JetStream) (*Registry, error) {
	kv, err := js.KeyValue(ctx, LeasesBucket)
	switch {
	case errors.Is(err, jetstream.ErrBucketNotFound):
		return nil, nil //nolint:nilnil // none is no error
	case err != nil:
		return nil, fmt.Errorf("key-value bucket %s: %w", LeasesBucket, err)
	}
	return &Registry{js: js, kv: kv}, nil
}

// put stores a value only if the key has the given revision.
func (r *Registry) put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return r.write(ctx, &nats.Msg{Subject: leasesSubject + key, Data: value, Header: nats.Header{}}, revision)
}

// remove deletes the key only if it has the given revision.
func (r *Registry) remove(ctx context.Context, key string, revision uint64) (uint64, error) {
	h := nats.Header{headerOperation: {operationDeleted}}
	if strings.HasPrefix(key, memberPrefix) {
		h[headerTTL] = []string{endKept.String()}
	}
	return r.write(ctx, &nats.Msg{Subject: leasesSubject + key, Header: h}, revision)
}

func (r *Registry) write(ctx context.Context, m *nats.Msg, revision uint64) (uint64, error) {
	m.Header[stream.HeaderExpectedSeq] = []string{strconv.FormatUint(revision, 10)}
	ack, err := r.js.PublishMsg(ctx, m)
	var api *jetstream.APIError
	switch {
	case err == nil:
		return ack.Sequence, nil
	case errors.As(err, &api) && (api.ErrorCode == stream.CodeWrongLastSeq || api.ErrorCode == stream.CodeWrongLastSeqConst):
		return 0, fmt.Errorf("%w: %s", stream.ErrStale, api.Description)
	}
	return 0, err
}

// keyState is the state of a key. A key without value and revision is absent; a key with only a revision was deleted.
type keyState struct {
	value    []byte
	revision uint64
}

// last returns a key's newest state.
func (r *Registry) last(ctx context.Context, key string) (keyState, error) {
	return newestOf(ctx, r.js.Conn(), LeasesBucket, key)
}

// newestOf returns a key's newest state. It asks the bucket's leader, because a replica that lags could report a lease
// that has ended, or miss one that has begun.
func newestOf(ctx context.Context, nc *nats.Conn, bucket, key string) (keyState, error) {
	m, err := stream.NewestEntry(ctx, nc, bucket, key)
	if err != nil || m == nil {
		return keyState{}, err
	}
	s := keyState{revision: m.Seq, value: m.Data}
	if strings.Contains(string(m.Headers), headerOperation) || len(s.value) == 0 {
		s.value = nil
	}
	return s, nil
}

// Sighting is one change in the registry. If it has neither Session nor Partition, all entries that were there when the
// watch began have been passed.
type Sighting struct {
	Revision uint64
	// Session names the membership that changed. Member is nil if the membership has ended.
	Session string
	Member  *Member
	// Partition names the claimed partition. Owner is the session that claims it, or "" after a release.
	Partition *PartitionID
	Owner     string
}

// Watch passes every entry of the registry to see, and then every change, in the order of the revisions. It blocks
// until ctx ends or the watch breaks. A server's replica that lags may show older entries first. But the Sighting that
// ends the present entries comes only after all entries that the leader has. So after a break, an entry that the next
// Watch does not pass before that Sighting is gone.
func (r *Registry) Watch(ctx context.Context, see func(Sighting)) error {
	watcher, err := stream.WatchWhole(ctx, r.js.Conn(), r.kv, jetstream.AllKeys)
	if err != nil {
		return fmt.Errorf("watch %s: %w", LeasesBucket, err)
	}
	defer func() { _ = watcher.Stop() }() // the watch has ended with ctx, or is no longer needed
	for {
		select {
		case entry, open := <-watcher.Updates():
			switch {
			case ctx.Err() != nil:
				return nil
			case !open:
				return fmt.Errorf("the watch of %s has ended", LeasesBucket)
			}
			if s, ok := sighted(entry); ok {
				see(s)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// sighted reads an entry. ok is false for an entry that weir cannot have written.
func sighted(entry jetstream.KeyValueEntry) (s Sighting, ok bool) {
	if entry == nil {
		return s, true
	}
	s.Revision = entry.Revision()
	there := entry.Operation() == jetstream.KeyValuePut && len(entry.Value()) > 0
	if session, ok := strings.CutPrefix(entry.Key(), memberPrefix); ok {
		s.Session = session
		if there {
			s.Member = &Member{}
			return s, json.Unmarshal(entry.Value(), s.Member) == nil
		}
		return s, true
	}
	name, ok := strings.CutPrefix(entry.Key(), claimPrefix)
	api, number, cut := strings.Cut(name, ".")
	n, err := strconv.Atoi(number)
	if !ok || !cut || err != nil {
		return s, false
	}
	s.Partition = &PartitionID{API: api, Number: n}
	if there {
		s.Owner = string(entry.Value())
	}
	return s, true
}
