package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"weir/bucket"
)

// errUndecided says that a replica that may be dead stands in the way.
var errUndecided = errors.New("it is not known yet whether another replica lives")

// refused says why this replica may not dispatch beside the others: limits that are shared by all keys must be counted
// in one place. Of two that cannot go together the younger one is refused. It is called with the lock held.
func (w *owner) refused(lease *bucket.Membership) error {
	if !w.o.complete || w.o.leaving {
		return nil
	}
	for _, session := range slices.Sorted(maps.Keys(w.o.members)) {
		m := w.o.members[session]
		joined := m.Joined
		if joined == 0 {
			joined = m.revision
		}
		if session == w.o.self || joined > lease.Joined() {
			continue
		}
		err := w.d.conflict(m.Member, nil)
		switch {
		case err == nil:
		case !m.heard:
			return errUndecided
		default:
			return err
		}
	}
	return nil
}

// conflict says why a replica cannot dispatch beside this one, nil when it can. rules are those of the apis, nil for the
// ones in force.
func (d *Dispatcher) conflict(m bucket.Member, rules map[string]bucket.Rules) error {
	if m.SharedBy != d.opts.SharedBy {
		return fmt.Errorf("instance %s counts limits %s, this one %s: set the same WEIR_REDIS_URL on both, or WEIR_ROLES=ingest on this one",
			m.Instance, where(m.SharedBy), where(d.opts.SharedBy))
	}
	if d.opts.SharedBy != "" {
		return nil
	}
	if rules == nil {
		rules = d.rules()
	}
	for _, api := range slices.Sorted(maps.Keys(rules)) {
		for _, l := range rules[api].Shared {
			if !l.Shadow {
				return fmt.Errorf("instance %s dispatches too, and limit %s of api %s is shared by all keys: set WEIR_REDIS_URL on every replica that dispatches, so that they count it together, or WEIR_ROLES=ingest on all but one",
					m.Instance, l.Name, api)
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

// CheckShared says why rules, by api, cannot be put in force beside the replicas that dispatch now.
func (d *Dispatcher) CheckShared(rules map[string]bucket.Rules) error {
	if d.owner == nil {
		return nil
	}
	d.owner.mu.Lock()
	defer d.owner.mu.Unlock()
	if d.owner.o == nil {
		return nil
	}
	for session, m := range d.owner.o.members {
		if session != d.owner.o.self {
			if err := d.conflict(m.Member, rules); err != nil {
				return err
			}
		}
	}
	return nil
}

// Beside reports whether other replicas dispatch too, as far as this one knows.
func (d *Dispatcher) Beside() bool {
	if d.owner == nil {
		return false
	}
	d.owner.mu.Lock()
	defer d.owner.mu.Unlock()
	o := d.owner.o
	if o == nil || !o.complete {
		return true
	}
	for session := range o.members {
		if session != o.self {
			return true
		}
	}
	return false
}

func (d *Dispatcher) rules() map[string]bucket.Rules {
	rules := map[string]bucket.Rules{}
	for _, l := range d.lanesNow() {
		l.mu.Lock()
		rules[l.name] = *l.s.rules
		l.mu.Unlock()
	}
	return rules
}

// partitions are those of every api that this replica dispatches.
func (d *Dispatcher) partitions() map[string]int {
	n := map[string]int{}
	for _, l := range d.lanesNow() {
		n[l.name] = len(l.parts)
	}
	return n
}

// AwaitNoRival blocks until no replica is there beside which one that counts shared limits so may not dispatch, by these
// rules: one that is not heard of for the term of its membership is taken for dead. It fails when one lives. It is to be
// called before anything is done that such a replica could mind; what comes at the same time Run sees.
func AwaitNoRival(ctx context.Context, r *bucket.Registry, sharedBy string, rules map[string]bucket.Rules) error {
	if d := (&Dispatcher{opts: Options{SharedBy: sharedBy}}); d.conflict(bucket.Member{SharedBy: sharedBy}, rules) == nil {
		return nil // these rules are nobody's business
	}
	ctx, cancel := context.WithCancelCause(ctx)
	seen, watched := make(chan bucket.Sighting), make(chan error, 1)
	go func() {
		watched <- r.Watch(ctx, func(s bucket.Sighting) {
			select {
			case seen <- s:
			case <-ctx.Done():
			}
		})
	}()
	d, o, start := &Dispatcher{opts: Options{SharedBy: sharedBy}}, newOwnership("", "", time.Now()), time.Now()
	tick := time.NewTicker(planEvery)
	defer tick.Stop()
	err := errUndecided
	for errors.Is(err, errUndecided) {
		select {
		case s := <-seen:
			o.see(s, time.Now())
		case <-tick.C:
		case err := <-watched:
			cancel(nil)
			if err == nil {
				err = context.Cause(ctx)
			}
			return err
		}
		// Whoever lives is heard of in this time, whatever the watch shows at its beginning.
		if err = d.rival(o, rules, time.Now()); err == nil && time.Since(start) < 3*bucket.MemberRenew/2 {
			err = errUndecided
		}
	}
	cancel(nil)
	return errors.Join(err, <-watched)
}

// rival is a member beside which this replica may not dispatch.
func (d *Dispatcher) rival(o *ownership, rules map[string]bucket.Rules, now time.Time) error {
	if !o.complete {
		return errUndecided
	}
	undecided := error(nil)
	for _, m := range o.members {
		switch err := d.conflict(m.Member, rules); {
		case err == nil, bucket.Expired(m.seen, now):
		case m.heard:
			return err
		default:
			undecided = errUndecided
		}
	}
	return undecided
}
