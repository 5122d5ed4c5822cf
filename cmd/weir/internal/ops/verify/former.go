package verify

import (
	"reflect"
	"slices"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config"
)

// Limits that were changed.
//
// A window is checked against the limits in force when its last call was made, with all calls in it. Calls from before
// a change count, too, and the change does not excuse them. Just after a change a replica may still use the former
// limits. So a call of that time fails only if it exceeds both the former and the new limit.

// former has the limits that calls obeyed before the last change.
type former struct {
	api   *config.API
	since time.Time // calls before this time share no window with later ones
	until time.Time // from then on every replica uses the present limits
}

// era says when a call was made, relative to the change.
type era int

const (
	inForce era = iota
	beforeChange
	justAfter
)

// followGrace is how long after a change of limits calls may still obey the former ones.
const followGrace = 2 * time.Second

// newFormer returns the limits of was, which present replaced at changed.
func newFormer(was, present *config.API, changed time.Time) *former {
	longest := time.Duration(0)
	rate := func(r *bucket.Rate) {
		if r != nil {
			longest = max(longest, r.Per)
		}
	}
	for _, rules := range []*bucket.Rules{&was.Rules, &present.Rules} {
		rate(&rules.Key.Rate)
		for i := range rules.Overrides {
			rate(rules.Overrides[i].Rate)
		}
		for i := range rules.Replica {
			rate(rules.Replica[i].Rate)
		}
		for i := range rules.Shared {
			l := &rules.Shared[i]
			rate(l.Rate)
			if l.Quota != nil {
				longest = max(longest, reach(l.Quota))
			}
			if l.Budget != nil {
				longest = max(longest, reach(&l.Budget.Quota))
			}
		}
	}
	return &former{was, changed.Add(-longest - max(was.Timeout, present.Timeout)), changed.Add(followGrace)}
}

// reach returns the longest time between two calls in one period.
func reach(q *bucket.Quota) time.Duration {
	if q.Window == bucket.Calendar && q.Unit == bucket.Month {
		return 32 * 24 * time.Hour
	}
	return q.Length() + 2*time.Hour // for clocks that are set back
}

// matters reports whether a call from before the change may share a window with later ones.
func (f *former) matters(started time.Time) bool { return f != nil && !started.Before(f.since) }

// limit returns the former limit of the same name or, if there is none, one that equals now in all but the name. It
// returns nil if there is neither.
func (f *former) limit(now *bucket.Limit) *bucket.Limit {
	if f == nil {
		return nil
	}
	var renamed *bucket.Limit
	for _, was := range slices.Concat(f.api.Rules.Shared, f.api.Rules.Replica) {
		if was.Name == now.Name {
			return &was
		}
		same := was
		if same.Name = now.Name; reflect.DeepEqual(&same, now) {
			renamed = &was
		}
	}
	return renamed
}

// own returns a key's own former limits. They are nil if nothing changed.
func (f *former) own(key string) (rate, inFlight *bucket.Limit) {
	if f == nil {
		return nil, nil
	}
	limits := f.api.Rules.For(key)
	return &bucket.Limit{Name: bucket.OwnRate, Rate: &limits.Rate}, &bucket.Limit{Name: "in_flight", InFlight: limits.InFlight}
}

// era returns the era of a call that started at at, in nanoseconds.
func (r *replay) era(at int64) era {
	switch {
	case r.former == nil || at >= r.former.until.UnixNano():
		return inForce
	case at < r.since.UnixNano():
		return beforeChange
	}
	return justAfter
}

// checked is one limit with its findings.
type checked struct {
	*bucket.Checking
	before *bucket.Checking // the limit that it replaced, or nil
}

func newChecked(l bucket.Limit, before *bucket.Limit, jitter time.Duration) *checked {
	c := &checked{Checking: bucket.NewChecking(bucket.Expectation{Limit: l, Jitter: jitter})}
	if before != nil {
		c.before = bucket.NewChecking(bucket.Expectation{Limit: *before, Jitter: jitter})
	}
	return c
}

// add checks the next call by the limit of its era.
func (c *checked) add(a bucket.Arrival, made era) {
	if made == inForce {
		c.Add(a)
		return
	}
	over := c.before != nil && c.before.Before(a)
	if made == justAfter && over {
		c.Add(a)
		return
	}
	c.Before(a)
}
