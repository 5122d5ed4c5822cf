package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"weir/bucket"

	"pgregory.net/rapid"
)

// Changes puts random rules in force one after the other while calls are made, and looks at every window across a
// change.
//
// Every call counts one in every limit. A window is checked against the rules under which its last call was granted, as
// if they had always been in force: a limit that is new, renamed, of another kind or of other numbers counts what was
// called before.
func Changes(t *testing.T, open Open, scenes int) {
	for left := scenes; left > 0; left -= 100 { // rapid plays a hundred at a time
		played := 0
		rapid.Check(t, func(rt *rapid.T) {
			if played++; played > left && !rt.Failed() {
				return
			}
			c := &changing{RT: rt, rng: rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))}
			first := anyRules(rt)
			c.clock.now = Start
			c.store = open(t, first, &c.clock)
			c.eras = append(c.eras, era{first, Start})
			for range rapid.IntRange(1, 3).Draw(rt, "changes") {
				c.calls(rapid.IntRange(0, 60).Draw(rt, "asks"))
				c.change(anyRules(rt))
			}
			c.calls(100)
			c.hold()
		})
	}
}

// slack is how much longer than a window a call may wait: the largest jitter of anyRules, and what a checkpoint claims
// ahead.
const slack = 600_000

// changing is one play.
type changing struct {
	RT    *rapid.T
	store Store
	clock Clock
	rng   *rand.Rand
	eras  []era
	made  []changingCall
}

// changingCall is a call, with its time.
type changingCall struct {
	key  string
	at   bucket.Micros
	slot bucket.Micros
	era  int
}

// anyRules draws a key's rate and one shared limit, by windows or tokens, with a jitter and a headroom.
func anyRules(t *rapid.T) bucket.Rules {
	r := bucket.Rules{
		Key: bucket.KeyLimits{Rate: someRate(t, "key")}, Jitter: time.Duration(rapid.SampledFrom([]int64{0, 0, 50, 400}).Draw(t, "jitter")) * time.Millisecond,
		Headroom: rapid.SampledFrom([]int64{0, 0, 0, 30}).Draw(t, "headroom"), Lease: time.Second,
	}
	if rapid.Bool().Draw(t, "override") {
		rate := someRate(t, "override rate")
		r.Overrides = []bucket.Override{{Pattern: "b", Rate: &rate}}
	}
	if rapid.IntRange(0, 3).Draw(t, "shared") == 0 {
		return r
	}
	rate := someRate(t, "shared rate")
	rate.Count, rate.Burst = rate.Count+rate.Count/2, rate.Burst+1
	if rate.Counts == bucket.ByWindow {
		rate.Burst = min(rate.Burst, rate.Count)
	}
	l := bucket.Limit{Name: rapid.SampledFrom([]string{"one", "one", "two"}).Draw(t, "name"), Rate: &rate}
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		l.Rate, l.Quota = nil, &bucket.Quota{Count: 30, Window: bucket.Sliding, Per: 10 * time.Second}
	case 1:
		l.Shadow = true
	}
	r.Shared = []bucket.Limit{l}
	return r
}

func someRate(t *rapid.T, name string) bucket.Rate {
	r := bucket.Rate{
		Count: rapid.Int64Range(1, 20).Draw(t, name), Per: time.Duration(rapid.SampledFrom([]int64{1, 2, 10, 10, 10, 20, 60}).Draw(t, name+" per")) * time.Second,
		Burst: rapid.Int64Range(1, 20).Draw(t, name+" burst"), Counts: bucket.ByTokens,
	}
	if rapid.IntRange(0, 2).Draw(t, name+" counts") > 0 {
		r.Counts, r.Burst = bucket.ByWindow, min(r.Burst, r.Count)
	}
	return r
}

// calls asks for slots so many times, and uses those that are granted.
func (c *changing) calls(asks int) {
	for range asks {
		key := []string{"a", "b"}[c.rng.IntN(2)]
		if wait := c.call(key); wait > c.clock.now && c.rng.IntN(2) == 0 {
			c.clock.now = min(wait, c.clock.now+bucket.Micros(c.rng.Int64N(30_000_000)))
		} else if c.rng.IntN(4) == 0 {
			c.clock.now += bucket.Micros(c.rng.Int64N(3_000_000))
		}
	}
}

// call asks for a key, and returns when to ask again.
func (c *changing) call(key string) bucket.Micros {
	rules := c.eras[len(c.eras)-1].rules
	got, err := c.store.Reserve(context.Background(), []bucket.Ask{{Key: key, Limits: rules.For(key), Want: 1 + c.rng.IntN(12)}})
	if err != nil {
		c.RT.Fatal(err)
	}
	var uses []bucket.Use
	for _, g := range got[0].Grants {
		late := bucket.Micros(0)
		if rules.Jitter > 0 {
			late = bucket.Micros(c.rng.Int64N(2) * int64(rules.Jitter/time.Microsecond))
		}
		c.made = append(c.made, changingCall{key, g.At + late, g.At, len(c.eras) - 1})
		uses = append(uses, bucket.Use{Key: key, Grant: g})
	}
	if err := c.store.Settle(context.Background(), uses); err != nil {
		c.RT.Fatal(err)
	}
	return got[0].Wait.Until
}

// change puts rules in force, and checks that no call waits longer for a rate than its window.
func (c *changing) change(rules bucket.Rules) {
	if err := c.store.Apply(rules); err != nil {
		c.RT.Fatal(err)
	}
	if err := c.store.Settle(context.Background(), nil); err != nil { // a store may find out only at its next call: now
		c.RT.Fatal(err)
	}
	c.eras = append(c.eras, era{rules, c.clock.now})
	longest := bucket.Micros(0)
	for _, r := range c.rates(len(c.eras)-1, "a", "b") {
		longest = max(longest, bucket.Micros((r.Per+rules.Jitter)/time.Microsecond), bucket.Micros(rules.Interval(r).Duration()/time.Microsecond)+1)
	}
	for _, l := range rules.Shared {
		if l.Quota != nil {
			longest = max(longest, bucket.Micros(l.Quota.Per/time.Microsecond)+500_000)
		}
	}
	for _, key := range []string{"a", "b"} {
		if wait := c.call(key); wait > c.clock.now+longest+slack {
			c.RT.Fatalf("key %s waits for %d µs after a change, longer than the %d µs of the longest window: %s", key, wait-c.clock.now, longest, c.told())
		}
	}
}

// rates returns the rates that hold calls of keys in an era.
func (c *changing) rates(e int, keys ...string) []bucket.Rate {
	rules := c.eras[e].rules
	var rates []bucket.Rate
	for _, key := range keys {
		rates = append(rates, rules.For(key).Rate)
	}
	for _, l := range rules.Shared {
		if l.Rate != nil && !l.Shadow {
			rates = append(rates, *l.Rate)
		}
	}
	return rates
}

// hold checks the calls of each key, and those of all keys.
func (c *changing) hold() {
	for e := range c.eras {
		rules := c.eras[e].rules
		for _, key := range []string{"a", "b"} {
			c.holdRate(e, fmt.Sprint("key ", key), rules.For(key).Rate, func(x *changingCall) bool { return x.key == key })
		}
		for _, l := range rules.Shared {
			if l.Rate != nil && !l.Shadow {
				c.holdRate(e, l.Name, *l.Rate, func(*changingCall) bool { return true })
			}
		}
	}
}

// holdRate checks every window whose last call was granted in an era.
func (c *changing) holdRate(e int, name string, rate bucket.Rate, counts func(*changingCall) bool) {
	var calls []changingCall
	for i := range c.made {
		if x := c.made[i]; counts(&x) && x.era <= e {
			calls = append(calls, x)
		}
	}
	if rate.Counted() == bucket.ByTokens {
		c.holdTokens(e, name, rate, calls)
		return
	}
	for i := range calls {
		n, last := int64(0), 0
		for j := range calls {
			if d := calls[j].at - calls[i].at; d >= 0 && d < bucket.Micros(rate.Per/time.Microsecond) {
				n, last = n+1, max(last, calls[j].era)
			}
		}
		if n > rate.Count && last == e {
			c.RT.Fatalf("%s: %d calls within %s of %d µs, %d are allowed: %s", name, n, rate.Per, calls[i].at-Start, rate.Count, c.told())
		}
	}
}

// holdTokens simulates the api's bucket. Before the rate came into force, the bucket was never below empty.
func (c *changing) holdTokens(e int, name string, rate bucket.Rate, calls []changingCall) {
	level, last := float64(rate.Burst), bucket.Micros(0)
	fill := func(at bucket.Micros) {
		level = min(float64(rate.Burst), level+float64(max(0, at-last))*float64(rate.Count)/float64(rate.Per/time.Microsecond))
		last = max(last, at)
	}
	for i := range calls {
		x := &calls[i]
		fill(x.slot)
		if level--; x.era < e {
			level = max(0, level)
		}
		if level < -1e-4 {
			c.RT.Fatalf("%s: a bucket of %d that gains %d in %s is overdrawn by %.3f at %d µs: %s", name, rate.Burst, rate.Count, rate.Per, -level, x.slot-Start, c.told())
		}
	}
}

// told describes what was played.
func (c *changing) told() string {
	var b strings.Builder
	for e, x := range c.eras {
		fmt.Fprintf(&b, "\nfrom %d µs, jitter %s, headroom %d: key a %+v, key b %+v", x.from-Start, x.rules.Jitter, x.rules.Headroom, x.rules.For("a").Rate, x.rules.For("b").Rate)
		for _, l := range x.rules.Shared {
			fmt.Fprintf(&b, ", %s %+v %+v shadow %t", l.Name, l.Rate, l.Quota, l.Shadow)
		}
		for _, call := range c.made {
			if call.era == e {
				fmt.Fprintf(&b, " %s@%d", call.key, call.slot-Start)
			}
		}
	}
	return b.String()
}
