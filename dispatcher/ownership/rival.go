package ownership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"weir/bucket"
	"weir/bucket/lease"
)

// errUndecided says that it is not known yet whether a conflicting replica is alive.
var errUndecided = errors.New("it is not known yet whether another replica lives")

// refusedLocked returns why this replica may not dispatch beside the other replicas, nil if it may: limits shared by
// all keys must be counted in one place. If two replicas cannot dispatch together, the one that joined later is
// refused. refusedLocked returns errUndecided if it is not known yet whether the other one is alive.
func (m *Manager) refusedLocked(own *lease.Membership) error {
	if !m.o.complete || m.o.leaving {
		return nil
	}
	rules := m.opts.Host.Rules()
	for _, session := range slices.Sorted(maps.Keys(m.o.members)) {
		other := m.o.members[session]
		joined := other.Joined
		if joined == 0 {
			joined = other.revision
		}
		if session == m.o.self || joined > own.Joined() {
			continue
		}
		err := conflict(m.opts.SharedBy, other.Member, rules)
		switch {
		case err == nil:
		case !other.heard:
			return errUndecided
		default:
			return err
		}
	}
	return nil
}

// conflict returns why another replica cannot dispatch beside this one, nil if it can. This replica counts shared
// limits at sharedBy. rules are the rules of its apis.
func conflict(sharedBy string, other lease.Member, rules map[string]bucket.Rules) error {
	if other.SharedBy != sharedBy {
		return fmt.Errorf("instance %s counts limits %s, this one %s: set the same WEIR_REDIS_URL on both, or WEIR_ROLES=ingest on this one",
			other.Instance, where(other.SharedBy), where(sharedBy))
	}
	if sharedBy != "" {
		return nil
	}
	for _, api := range slices.Sorted(maps.Keys(rules)) {
		for _, l := range rules[api].Shared {
			if !l.Shadow {
				return fmt.Errorf("instance %s dispatches too, and limit %s of api %s is shared by all keys: set WEIR_REDIS_URL on every replica that dispatches, so that they count it together, or WEIR_ROLES=ingest on all but one",
					other.Instance, l.Name, api)
			}
		}
	}
	return nil
}

func where(sharedBy string) string {
	if sharedBy == "" {
		return "in its process"
	}
	return "in Redis"
}

// CheckShared returns why these rules cannot be put in force beside the replicas that dispatch now, nil if they can.
// rules are by api.
func (m *Manager) CheckShared(rules map[string]bucket.Rules) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.o == nil {
		return nil
	}
	for session, other := range m.o.members {
		if session != m.o.self {
			if err := conflict(m.opts.SharedBy, other.Member, rules); err != nil {
				return err
			}
		}
	}
	return nil
}

// Beside reports whether other replicas dispatch too. It also returns true while that is not known.
func (m *Manager) Beside() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.o == nil || !m.o.complete {
		return true
	}
	for session := range m.o.members {
		if session != m.o.self {
			return true
		}
	}
	return false
}

// AwaitNoRival blocks until this replica has no rival. A rival is a replica that must not dispatch beside this one,
// which has these rules and counts shared limits at sharedBy. AwaitNoRival fails if a rival is alive. A replica that
// does not renew for the term of its membership counts as dead, and AwaitNoRival ends its membership. The caller must
// call AwaitNoRival before it does anything that could disturb a rival. If a rival starts at the same time, Run detects
// it.
func AwaitNoRival(ctx context.Context, r *lease.Registry, sharedBy string, rules map[string]bucket.Rules) error {
	if conflict(sharedBy, lease.Member{SharedBy: sharedBy}, rules) == nil { // a rival can only count elsewhere
		members, err := r.Members(ctx)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(members, func(m lease.Sighting) bool { return conflict(sharedBy, *m.Member, rules) != nil }) {
			return nil
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	seen, watched := make(chan lease.Sighting), make(chan error, 1)
	go func() {
		watched <- r.Watch(ctx, func(s lease.Sighting) {
			select {
			case seen <- s:
			case <-ctx.Done():
			}
		})
	}()
	o, start := newState("", "", time.Now()), time.Now()
	tick := time.NewTicker(planEvery)
	defer tick.Stop()
	err := errUndecided
	for errors.Is(err, errUndecided) {
		select {
		case s := <-seen:
			o.see(s, time.Now())
		case <-tick.C:
			o.lookFor(r.Gone)
		case err := <-watched:
			cancel(nil)
			if err == nil {
				err = context.Cause(ctx)
			}
			return err
		}
		// Every live replica renews within this time, whatever the watch shows at first.
		if err = rival(o, sharedBy, rules, time.Now()); err == nil && time.Since(start) < 3*lease.MemberRenew/2 {
			err = errUndecided
		}
	}
	if err == nil {
		err = o.expelLapsed(ctx, r)
	}
	cancel(nil)
	return errors.Join(err, <-watched)
}

// expelLapsed ends the memberships that were not renewed for a whole term. Then no other replica has to wait for them.
func (o *state) expelLapsed(ctx context.Context, r *lease.Registry) error {
	for session, m := range o.members {
		if !lease.Lapsed(m.seen, time.Now()) {
			continue
		}
		if _, _, err := r.Expel(ctx, session, m.revision); err != nil { // if the member lives after all, Run sees it
			return err
		}
	}
	return nil
}

// rival returns an error if this replica may not dispatch beside a member that is alive, and errUndecided if it is not
// known yet whether there is such a member.
func rival(o *state, sharedBy string, rules map[string]bucket.Rules, now time.Time) error {
	if !o.complete {
		return errUndecided
	}
	undecided := error(nil)
	for _, m := range o.members {
		switch err := conflict(sharedBy, m.Member, rules); {
		case err == nil, m.gone, lease.Lapsed(m.seen, now):
		case m.heard:
			return err
		default:
			undecided = errUndecided
		}
	}
	return undecided
}
