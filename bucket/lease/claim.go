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

// String returns the name of the partition for messages.
func (p PartitionID) String() string { return fmt.Sprintf("partition %d of api %s", p.Number, p.API) }

// Claim stores that a session owns a partition and returns the claim's revision. It fails if anything about the
// partition has changed since revision; 0 stands for a partition of which nothing was known.
//
// The caller must have made sure that at revision the partition is free, or that the session that held it has ended, by
// Expel or by a Sighting. Claim fails with ErrUnreadable if revision is 0 and the server holds a claim that it cannot
// read: the partition's owner is then unknown.
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

// ErrUnreadable says that the server cannot read a claim. Such a claim cannot be replaced: the server still counts it,
// and does not answer a process that writes to its subject.
var ErrUnreadable = fmt.Errorf("the server cannot read its owner: stop every weir that dispatches, delete the key-value bucket %s (nats kv del %s), "+
	"and start them again", LeasesBucket, LeasesBucket)

// checkReadable fails with ErrUnreadable if the server holds a claim of the partition and cannot read it.
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
	return nil // the claim has come meanwhile
}

// Release gives a claim up and returns the revision of that write. The caller must first have ended every call of the
// partition and stored the outcomes, because the next owner relies on that.
func (r *Registry) Release(ctx context.Context, p PartitionID, revision uint64) (uint64, error) {
	got, err := r.remove(ctx, claimKey(p), revision)
	if err != nil {
		return 0, fmt.Errorf("release %s: %w", p, err)
	}
	return got, nil
}

// Expel ends the membership of another session for good, if that session has not renewed it since revision. It reports
// whether the membership has ended, and if not, the revision of its newest renewal. An ended session can never renew
// again, because each renewal names the one before. Revision 0 means that nothing is known of the session.
func (r *Registry) Expel(ctx context.Context, session string, revision uint64) (ended bool, newest uint64, err error) {
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
			return false, now.revision, nil // the session has renewed since revision
		}
		if now.revision != 0 {
			return true, 0, nil // the stream holds the message that ended it
		}
		revision = 0 // the message that ended it is gone too: try again, on the condition that the key is absent
	}
	return false, 0, nil
}

// ErrLives says that a replica renewed a membership that ExpelAll was to end.
var ErrLives = errors.New("a replica renews its lease")

// ExpelAll ends every membership for good. Before the call, the caller must have watched the memberships for a term and
// a margin without seeing a renewal. If a replica renews a membership nevertheless, ExpelAll fails with ErrLives.
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

// Members returns the memberships that have not ended, as sightings. It blocks until the registry answers or ctx ends.
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
		return nil, fmt.Errorf("read the owners of partitions: %w", err)
	}
	return slices.SortedFunc(maps.Values(members), func(a, b Sighting) int { return cmp.Compare(a.Revision, b.Revision) }), nil
}
