package verify

import (
	"reflect"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config"
)

// Limits that were changed.
//
// A window is held against the limits in force when its last call was made, with all calls in it: what was called before a change
// counts, and the change does not excuse it. Just after a change a replica may not have followed yet; a call of that time fails
// where it is too much under the former limit and under the new one.

// former is by what calls were made before the limits were changed last.
type former struct {
	api   *config.API
	since time.Time // calls before are in no window with later ones
	until time.Time // from then on every replica goes by the present limits
}

// era is when a call was made.
type era int

const (
	inForce era = iota
	beforeChange
	justAfter
)

// followGrace is how long after a change of limits calls may still go by the former ones.
const followGrace = 2 * time.Second

// newFormer is for limits that were changed at a time and are now those of present.
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

// reach is the longest that two calls of one period are apart.
func reach(q *bucket.Quota) time.Duration {
	if q.Window == bucket.Calendar && q.Unit == bucket.Month {
		return 32 * 24 * time.Hour
	}
	return q.Length() + 2*time.Hour // clocks that go back
}

// matters reports whether a call from before the change may share a window with later ones.
func (f *former) matters(started time.Time) bool { return f != nil && !started.Before(f.since) }

// limit is the limit that was there before another: of the same name, or else renamed. It is nil where there was none.
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

// own are a key's own limits before, nil where there were none.
func (f *former) own(key string) (rate, inFlight *bucket.Limit) {
	if f == nil {
		return nil, nil
	}
	limits := f.api.Rules.For(key)
	return &bucket.Limit{Name: bucket.OwnRate, Rate: &limits.Rate}, &bucket.Limit{Name: "in_flight", InFlight: limits.InFlight}
}

// era is when a call was made that started at a time, in nanoseconds.
func (r *replay) era(at int64) era {
	switch {
	case r.former == nil || at >= r.former.until.UnixNano():
		return inForce
	case at < r.since.UnixNano():
		return beforeChange
	}
	return justAfter
}

// checked is one limit with what was found of it.
type checked struct {
	*bucket.Checking
	before *bucket.Checking // the limit in whose place it came, nil for none
}

func newChecked(l bucket.Limit, before *bucket.Limit, jitter time.Duration) *checked {
	c := &checked{Checking: bucket.NewChecking(bucket.Expectation{Limit: l, Jitter: jitter})}
	if before != nil {
		c.before = bucket.NewChecking(bucket.Expectation{Limit: *before, Jitter: jitter})
	}
	return c
}

// add takes the next call.
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
