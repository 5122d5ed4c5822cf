package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"weir/bucket/stream"

	"github.com/nats-io/nats.go/jetstream"
)

// PartitionID names one partition of one api's queue.
type PartitionID struct {
	API    string
	Number int
}

// String is the partition as messages name it.
func (p PartitionID) String() string { return fmt.Sprintf("partition %d of api %s", p.Number, p.API) }

// Claim stores that a session owns a partition, if nothing about the partition has changed since revision (0: since
// nothing was known of it), and returns the claim's own revision.
//
// It is the caller that makes a claim safe: the partition is free at revision, or the session that held it is known to
// have ended (Expel, or a sighting that says so). Where nothing was known, and the server has a claim that it cannot read, it fails with
// ErrUnreadable: nobody knows whose that is.
func (r *Registry) Claim(ctx context.Context, p PartitionID, session string, revision uint64) (uint64, error) {
	if revision == 0 {
		if err := r.checkReadable(ctx, p); err != nil {
			return 0, fmt.Errorf("claim %s: %w", p, err)
		}
	}
	got, err := r.put(ctx, claimKey(p), []byte(session), revision)
	if err != nil {
		return 0, fmt.Errorf("claim %s: %w", p, err)
	}
	return got, nil
}

// ErrUnreadable says that a claim cannot be read, and so not be replaced either: the server counts what it cannot read, and answers nobody who
// writes there.
var ErrUnreadable = fmt.Errorf("its server cannot read who owns it: stop every weir that dispatches, delete the key-value bucket %s (nats kv del %s), "+
	"and start them again", LeasesBucket, LeasesBucket)

// checkReadable fails with ErrUnreadable where the server has a claim of a partition and cannot read it.
func (r *Registry) checkReadable(ctx context.Context, p PartitionID) error {
	leases, err := r.js.Stream(ctx, leasesStream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", leasesStream, err)
	}
	info, err := leases.Info(ctx, jetstream.WithSubjectFilter(leasesSubject+claimKey(p)))
	if err != nil {
		return fmt.Errorf("stream %s: %w", leasesStream, err)
	}
	if info.State.Subjects[leasesSubject+claimKey(p)] == 0 {
		return nil
	}
	switch stands, err := r.last(ctx, claimKey(p)); {
	case err != nil:
		return err
	case stands.revision == 0:
		return ErrUnreadable
	}
	return nil // it has come meanwhile
}

// Release gives a claim up and returns the revision of its end. Whoever releases a partition has ended every call of it and stored what came of them: the
// next owner relies on it.
func (r *Registry) Release(ctx context.Context, p PartitionID, revision uint64) (uint64, error) {
	got, err := r.remove(ctx, claimKey(p), revision)
	if err != nil {
		return 0, fmt.Errorf("release %s: %w", p, err)
	}
	return got, nil
}

// Expel ends another session's membership for good, if it has not been renewed since revision, and reports whether it
// has ended, and if not, the revision that it stands at. The session can never renew again: it only does so on the
// condition that its last renewal stands. With revision 0 nothing is known of the session.
func (r *Registry) Expel(ctx context.Context, session string, revision uint64) (ended bool, stands uint64, err error) {
	key := memberKey(session)
	for range 2 {
		_, err := r.remove(ctx, key, revision)
		if err == nil {
			return true, 0, nil
		}
		if !errors.Is(err, stream.ErrStale) {
			return false, 0, fmt.Errorf("expel %s: %w", session, err)
		}
		now, err := r.last(ctx, key)
		if err != nil {
			return false, 0, fmt.Errorf("expel %s: %w", session, err)
		}
		if now.value != nil {
			return false, now.revision, nil // it lives, or has not been waited for
		}
		if now.revision != 0 {
			return true, 0, nil // its end is in the stream
		}
		revision = 0 // not even a mark of its end is left: the same again, on the condition that nothing is there
	}
	return false, 0, nil
}

// ErrLives says that a membership was renewed when it was to be ended.
var ErrLives = errors.New("a replica renews its lease")

// ExpelAll ends every membership there is, for good. The caller has not seen one renewed for a term and a margin. It fails
// with ErrLives where one is renewed all the same.
func (r *Registry) ExpelAll(ctx context.Context) error {
	members, err := r.Members(ctx)
	if err != nil {
		return err
	}
	for _, m := range members {
		switch ended, _, err := r.Expel(ctx, m.Session, m.Revision); {
		case err != nil:
			return err
		case !ended:
			return ErrLives
		}
	}
	return nil
}

// Members are the memberships that have not ended, as sightings. It blocks until the registry has answered, or ctx ends.
func (r *Registry) Members(ctx context.Context) ([]Sighting, error) {
	members := map[string]Sighting{}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	err := r.Watch(watching, func(s Sighting) {
		switch {
		case s.Member != nil:
			members[s.Session] = s
		case s.Session != "":
			delete(members, s.Session)
		case s.Partition == nil:
			stop()
		}
	})
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("read who dispatches: %w", err)
	}
	return slices.SortedFunc(maps.Values(members), func(a, b Sighting) int { return cmp.Compare(a.Revision, b.Revision) }), nil
}
