package storetest

import (
	"cmp"
	"slices"
	"time"

	"weir/bucket"
)

// What rates mean across a change.
//
// Every call counts one in every limit, when it arrives. A call is judged by the rates under which it was granted, as
// if these had always been in force: a rate that is new, renamed, of another kind or of other numbers counts the calls
// made before it. It is not judged for later grants. So if a window holds a call of an era, the calls of all eras up to
// that one must fit the rates of that era.

// hold checks the calls of each key, and the calls of all keys together.
func (c *changing) hold() {
	for e := range c.eras {
		rules := c.eras[e].rules
		for _, key := range []string{"a", "b"} {
			c.holdRate(e, "key "+key, rules.For(key).Rate, func(x *changingCall) bool { return x.key == key })
		}
		for _, l := range rules.Shared {
			if l.Rate != nil && !l.Shadow {
				c.holdRate(e, l.Name, *l.Rate, func(*changingCall) bool { return true })
			}
		}
	}
}

// holdRate checks the calls up to an era against one of its rates.
func (c *changing) holdRate(e int, name string, rate bucket.Rate, counts func(*changingCall) bool) {
	var calls []changingCall
	for i := range c.made {
		if x := c.made[i]; counts(&x) && x.era <= e {
			calls = append(calls, x)
		}
	}
	slices.SortStableFunc(calls, func(a, b changingCall) int { return cmp.Compare(a.at, b.at) })
	if rate.Counted() == bucket.ByTokens {
		c.holdTokens(e, name, rate, calls)
	} else {
		c.holdWindows(e, name, rate, calls)
	}
}

// holdWindows checks every window that holds a call of the era e.
func (c *changing) holdWindows(e int, name string, rate bucket.Rate, calls []changingCall) {
	for i := range calls {
		n, last := int64(0), 0
		for _, x := range calls[i:] {
			if x.at-calls[i].at >= bucket.Micros(rate.Per/time.Microsecond) {
				break
			}
			n, last = n+1, max(last, x.era)
		}
		if n > rate.Count && last == e {
			c.fail("%s: %d calls within %s of %d µs, %d are allowed: %s", name, n, rate.Per, calls[i].at-Start, rate.Count, c.describe())
		}
	}
}

// holdTokens simulates the api's bucket. Before the era the bucket never went below empty, because the api took no call
// without a token. Slots are whole microseconds, so a burst may exceed the bucket by the tokens of that time.
func (c *changing) holdTokens(e int, name string, rate bucket.Rate, calls []changingCall) {
	gain := float64(rate.Count) / float64(rate.Per/time.Microsecond)
	level, last := float64(rate.Burst), bucket.Micros(0)
	for i := range calls {
		x := &calls[i]
		level, last = min(float64(rate.Burst), level+float64(x.at-last)*gain)-1, x.at
		if x.era < e {
			level = max(0, level)
		}
		if level < -1e-4-2*gain {
			c.fail("%s: a bucket of %d that gains %d in %s is overdrawn by %.3f at %d µs: %s", name, rate.Burst, rate.Count, rate.Per, -level, x.at-Start, c.describe())
		}
	}
}
