package verify

import (
	"reflect"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config"
)

// Limits that were changed.
//
// A window is checked against the limits that were in force when its last call was made, with all calls in the window.
// Calls from before a change count too; that they came before the change does not excuse them. Just after a change a
// replica may still use the former limits. So a call of that time fails only if it exceeds both the former and the new
// limit.

// former has the limits that applied to calls before the last change.
type former struct {
	api   *config.API
	since time.Time // a call before this time shares no window with calls after the change
	until time.Time // from this time on every replica uses the present limits
}

// era says when a call was made, relative to the change.
type era int

const (
	inForce era = iota
	beforeChange
	justAfter
)

// followGrace is how long after a change of limits calls may still obey the former limits.
const followGrace = 2 * time.Second

// newFormer returns the limits of was. present replaced them at changed.
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

// reach returns the longest time that can lie between two calls in one period.
func reach(q *bucket.Quota) time.Duration {
	if q.Window == bucket.Calendar && q.Unit == bucket.Month {
		return 32 * 24 * time.Hour
	}
	return q.Length() + 2*time.Hour // for clocks that are set back
}

// matters reports whether a call from before the change may share a window with calls after the change.
func (f *former) matters(started time.Time) bool { return f != nil && !started.Before(f.since) }

// limit returns the former limit with the same name. If there is none, it returns the former limit that differs from
// now only in its name, nil if there is none either.
func (f *former) limit(now *bucket.Limit) *bucket.Limit {
	if f == nil {
		return nil
	}
	var renamed *bucket.Limit
	for i := range f.api.Rules.Shared {
		was := f.api.Rules.Shared[i]
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

// own returns the former limits of a key's own rate and calls in flight. They are nil if the limits were not changed.
func (f *former) own(key string) (rate, inFlight *bucket.Limit) {
	if f == nil {
		return nil, nil
	}
	limits := f.api.Rules.For(key)
	return &bucket.Limit{Name: bucket.OwnRate, Rate: &limits.Rate}, &bucket.Limit{Name: "in_flight", InFlight: limits.InFlight}
}

// era returns the era of a call that started at at, in nanoseconds since 1970.
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
	before *bucket.Checking // the limit that this limit replaced, or nil
}

func newChecked(l bucket.Limit, before *bucket.Limit, jitter time.Duration) *checked {
	c := &checked{Checking: bucket.NewChecking(bucket.Expectation{Limit: l, Jitter: jitter})}
	if before != nil {
		c.before = bucket.NewChecking(bucket.Expectation{Limit: *before, Jitter: jitter})
	}
	return c
}

// add checks the next call by the limit of the call's era.
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
