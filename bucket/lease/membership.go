package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"
	"weir/bucket/fault"
	"weir/bucket/stream"
)

// Times of a membership. Nobody compares clocks: its holder counts from the moment before it sent a renewal, the others from
// the moment they saw it, each on his own. The holder starts no call when it could not renew for Right. The others end a
// membership that they saw unchanged for Term: by then its right is over, if clocks run apart by less than a fourth, and a
// process that is stopped between its last look at the right and the call has a margin to get on.
//
// A shorter term has the calls of a dead replica go on sooner, and more calls held while the registry elects a leader.
const (
	MemberRenew  = time.Second
	Right        = 3 * time.Second
	memberMargin = 2 * time.Second
	Term         = Right + memberMargin
	// renewWait is how long a renewal is waited for before it is tried again: twice, before the right has passed.
	renewWait = MemberRenew
)

// Held reports whether the holder of a membership may start calls at now, who sent the last renewal that succeeded at renewed.
func Held(renewed, now time.Time) bool { return within(Right, renewed, now) }

// Member is what a replica that dispatches tells the others with every renewal of its membership.
type Member struct {
	Instance string `json:"instance"`
	// Leaving says that it gives its partitions up and takes no more.
	Leaving bool `json:"leaving,omitempty"`
	// SharedBy says where it counts limits shared by all keys: an address common to all, or empty for its own process.
	SharedBy string `json:"shared_by,omitempty"`
	// Partitions are those of every api that it dispatches.
	Partitions map[string]int `json:"partitions"`
	// Joined is the revision its membership began with, 0 in that one itself.
	Joined uint64 `json:"joined,omitempty"`
	// CutOff are the apis whose partitions it leaves to others, Seeks those of which it looks for one who reaches them, and
	// Reaches those that it reaches itself: as a replica that is cut off from an api, or from where its limits are counted, finds
	// another one.
	CutOff  []string `json:"cut_off,omitempty"`
	Seeks   []string `json:"seeks,omitempty"`
	Reaches []string `json:"reaches,omitempty"`
}

// Lapsed reports whether another replica may end a membership at now that it first saw at seen and that has not changed since.
func Lapsed(seen, now time.Time) bool { return now.Sub(seen) >= Term }

// Membership is one process's place among those that dispatch: a lease, renewed for all its claims (claim.go) together.
// Nobody may take one of them before the membership has ended for good. It is safe for concurrent use.
type Membership struct {
	registry *Registry
	session  string
	joined   uint64
	renewed  atomic.Pointer[time.Time] // just before the last renewal that succeeded
	ended    atomic.Bool

	mu       sync.Mutex // guards what follows; it is held over a renewal
	member   Member
	revision uint64
}

// Join begins a lease. Keep renews it.
func (r *Registry) Join(ctx context.Context, m Member) (*Membership, error) {
	l := &Membership{registry: r, session: r.nameSession(nuid.Next()), member: m}
	l.renewed.Store(new(time.Now()))
	revision, err := r.put(ctx, memberKey(l.session), marshalMember(m), 0)
	if err != nil {
		return nil, fmt.Errorf("begin a lease: %w", err)
	}
	fault.Pass(fault.LeaseStored)
	l.revision, l.joined, l.member.Joined = revision, revision, revision
	return l, nil
}

// Session names the lease: it is never used again.
func (l *Membership) Session() string { return l.session }

// Joined is the revision that the lease began with: of two the lower one is the older.
func (l *Membership) Joined() uint64 { return l.joined }

// Valid reports whether the lease can be trusted now: nobody else can have taken what hangs on it.
func (l *Membership) Valid() bool {
	return !l.ended.Load() && Held(*l.renewed.Load(), time.Now()) || fault.Planted(fault.NoFence)
}

// Keep renews the lease until ctx ends, with what change makes of what the others are told, and calls renewed after every renewal that
// succeeded. It fails with ErrLeaseLost when the lease has been ended.
func (l *Membership) Keep(ctx context.Context, change func(*Member), renewed func()) error {
	tick := time.NewTicker(MemberRenew)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		switch err := l.Announce(ctx, change); {
		case errors.Is(err, ErrLeaseLost) && !fault.Planted(fault.NoFence):
			return err
		case err == nil:
			renewed()
		} // any other error is tried again; Valid tells meanwhile
	}
}

// Announce changes what the others are told, and renews the lease by it.
func (l *Membership) Announce(ctx context.Context, change func(*Member)) error {
	ctx, cancel := context.WithTimeout(ctx, renewWait)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.member)
	before := time.Now()
	revision, err := l.registry.put(ctx, memberKey(l.session), marshalMember(l.member), l.revision)
	switch {
	case err == nil:
		l.revision = revision
		l.renewed.Store(&before)
		return nil
	case errors.Is(err, stream.ErrStale):
		return l.recheckLocked(ctx)
	}
	return fmt.Errorf("renew the lease: %w", err)
}

// recheckLocked tells a lease that was ended from one whose renewal succeeded without its answer arriving. Nobody but this
// process ever writes the lease, except to end it.
func (l *Membership) recheckLocked(ctx context.Context) error {
	now, err := l.registry.last(ctx, memberKey(l.session))
	switch {
	case err != nil:
		return fmt.Errorf("renew the lease: %w", err)
	case now.value == nil, now.revision < l.revision:
		// A bucket that lost its last renewal may have lost claims too, and is no proof of those that are left.
		l.ended.Store(true)
		return ErrLeaseLost
	}
	l.revision = now.revision
	return errors.New("renew the lease: an earlier renewal succeeded without an answer")
}

// End gives the lease up. It must not be called while calls run or their outcomes are being stored.
func (l *Membership) End(ctx context.Context) error {
	l.ended.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.registry.remove(ctx, memberKey(l.session), l.revision); err != nil {
		return fmt.Errorf("give up the lease: %w", err)
	}
	return nil
}

func marshalMember(m Member) []byte {
	data, err := json.Marshal(m)
	if err != nil {
		panic("bucket: a member that JSON cannot carry: " + err.Error())
	}
	return data
}
