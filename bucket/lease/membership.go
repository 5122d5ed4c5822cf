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

// Times of a membership. The clocks of different machines are never compared. The holder counts from the moment before
// it sent a renewal, and the other replicas from the moment they saw the renewal, each on its own clock. A holder that
// could not renew for Right starts no call. The other replicas end a membership that they saw unchanged for Term. By
// then the holder's right is over, if clocks run apart by less than a fourth. A process that is stopped between its
// last check of the right and the call has a margin left.
//
// With a shorter term the calls of a dead replica resume sooner, but more calls are held while the registry elects a
// leader.
const (
	MemberRenew  = time.Second
	Right        = 3 * time.Second
	memberMargin = 2 * time.Second
	Term         = Right + memberMargin
	// renewWait is how long Keep waits for one renewal before it tries again. Two tries fit before Right has passed.
	renewWait = MemberRenew
)

// Held reports whether a membership's holder may start calls at now. It sent its last successful renewal at renewed.
func Held(renewed, now time.Time) bool { return within(Right, renewed, now) }

// Member is what a dispatching replica reports to the other replicas with every renewal of its membership.
type Member struct {
	Instance string `json:"instance"`
	// Leaving says that the replica is giving up its partitions and takes no more.
	Leaving bool `json:"leaving,omitempty"`
	// SharedBy says where the replica counts the limits that all keys share: an address common to all replicas, or
	// empty if it counts in its own process.
	SharedBy string `json:"shared_by,omitempty"`
	// Partitions holds, by api, the number of partitions that the replica dispatches.
	Partitions map[string]int `json:"partitions"`
	// Joined is the revision with which the membership began. In its first write the field is 0, because the revision
	// is not known yet.
	Joined uint64 `json:"joined,omitempty"`
	// CutOff are the apis whose partitions the replica leaves to other replicas. Seeks are the apis for which the
	// replica looks for another replica that reaches them. Reaches are the apis that the replica reaches itself. With
	// these lists, a replica that is cut off from an api, or from the store of the api's limits, finds a replica that
	// is not.
	CutOff  []string `json:"cut_off,omitempty"`
	Seeks   []string `json:"seeks,omitempty"`
	Reaches []string `json:"reaches,omitempty"`
}

// Lapsed reports whether, at now, another replica may end a membership that it has seen unchanged since seen.
func Lapsed(seen, now time.Time) bool { return now.Sub(seen) >= Term }

// Membership is one process's place among the dispatching replicas. It is one lease for all claims of the process
// (claim.go). Another replica must not take a claim before the membership has ended for good. A Membership is safe for
// concurrent use.
type Membership struct {
	registry *Registry
	session  string
	joined   uint64
	renewed  atomic.Pointer[time.Time] // just before the last renewal that succeeded was sent
	ended    atomic.Bool

	mu       sync.Mutex // guards what follows; held during a renewal
	member   Member
	revision uint64
}

// Join begins a membership. Keep renews it.
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

// Session names the membership. The name is never used again.
func (l *Membership) Session() string { return l.session }

// Joined returns the revision with which the membership began. The older of two memberships has the lower revision.
func (l *Membership) Joined() uint64 { return l.joined }

// Valid reports whether the membership still holds: no other replica can have taken a claim that depends on it.
func (l *Membership) Valid() bool {
	return !l.ended.Load() && Held(*l.renewed.Load(), time.Now()) || fault.Planted(fault.NoFence)
}

// Keep renews the membership until ctx ends. Before each renewal it calls change, which may change the Member that the
// other replicas read. It calls renewed after every renewal that succeeded. It fails with ErrLeaseLost if another
// replica has ended the membership.
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
		} // Keep tries again after any other error; meanwhile Valid reports whether the membership is valid
	}
}

// Announce changes the Member that the other replicas read, and renews the membership with it. It blocks for renewWait
// at most, after other renewals under way.
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

// recheckLocked finds out whether the membership was ended, or the answer to a stored renewal was lost. Only this
// process writes the membership, except for the write that ends it.
func (l *Membership) recheckLocked(ctx context.Context) error {
	now, err := l.registry.last(ctx, memberKey(l.session))
	switch {
	case err != nil:
		return fmt.Errorf("renew the lease: %w", err)
	case now.value == nil, now.revision < l.revision:
		// A bucket that lost its last renewal may have lost claims too, so its remaining claims prove nothing.
		l.ended.Store(true)
		return ErrLeaseLost
	}
	l.revision = now.revision
	return errors.New("renew the lease: an earlier renewal was stored, but its answer was lost; the next renewal starts from it")
}

// End gives the membership up. It must not be called while calls run or their outcomes are being stored.
func (l *Membership) End(ctx context.Context) error {
	l.ended.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.registry.remove(ctx, memberKey(l.session), l.revision)
	if errors.Is(err, stream.ErrStale) { // the answer to a stored renewal may be lost
		var now keyState
		if now, err = l.registry.last(ctx, memberKey(l.session)); err == nil && now.value != nil {
			_, err = l.registry.remove(ctx, memberKey(l.session), now.revision)
		}
	}
	if err != nil {
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
