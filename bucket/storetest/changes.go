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

// Changes puts random rules in force one after the other while calls are made, and checks every window across a change.
// It first plays changesFound, the failures of earlier runs.
func Changes(t *testing.T, open Open, scenes int) {
	for i := range changesFound {
		t.Run(fmt.Sprint("found", i), func(t *testing.T) { changesFound[i].run(t, t.Fatalf, open) })
	}
	for left := scenes; left > 0; left -= 100 { // rapid plays a hundred at a time
		played := 0
		rapid.Check(t, func(rt *rapid.T) {
			if played++; played > left && !rt.Failed() {
				return
			}
			drawPlay(rt).run(t, rt.Fatalf, open)
		})
	}
}

// phase is one set of rules, and how often the keys ask under it. Jitter and Ahead, the horizon of asks, are in
// milliseconds.
type phase struct {
	Asks                    int
	Jitter, Headroom, Ahead int64
	Key, B                  tempo // the rates of all keys, and of key b if it has its own
	Name                    string
	Kind                    string // of the shared limit: "", "rate", "shadow" or "quota"
	Shared                  tempo
}

// tempo is a rate: a count in so many seconds, and its burst. Tokens says that it is counted by tokens.
type tempo struct {
	Count, Seconds, Burst int64
	Tokens                bool
}

// play is one test of Changes: phases one after the other, and the seed of all random numbers.
type play struct {
	Seed   uint64
	Phases []phase
}

func drawPlay(t *rapid.T) play {
	p := play{Seed: rapid.Uint64().Draw(t, "seed")}
	for range rapid.IntRange(2, 4).Draw(t, "phases") {
		p.Phases = append(p.Phases, drawPhase(t))
	}
	p.Phases[len(p.Phases)-1].Asks = 100
	return p
}

func drawPhase(t *rapid.T) phase {
	p := phase{
		Asks: rapid.IntRange(0, 60).Draw(t, "asks"), Key: drawTempo(t, "key"), Jitter: rapid.SampledFrom([]int64{0, 0, 50, 400}).Draw(t, "jitter"),
		Headroom: rapid.SampledFrom([]int64{0, 0, 0, 30}).Draw(t, "headroom"), Ahead: rapid.SampledFrom([]int64{0, 0, 0, 300}).Draw(t, "ahead"),
	}
	if rapid.Bool().Draw(t, "override") {
		p.B = drawTempo(t, "b")
	}
	if p.Kind = rapid.SampledFrom([]string{"rate", "rate", "rate", "", "shadow", "quota"}).Draw(t, "kind"); p.Kind == "" {
		return p
	}
	p.Name, p.Shared = rapid.SampledFrom([]string{"one", "one", "two"}).Draw(t, "name"), drawTempo(t, "shared")
	p.Shared.Count, p.Shared.Burst = p.Shared.Count+p.Shared.Count/2, p.Shared.Burst+1
	if !p.Shared.Tokens {
		p.Shared.Burst = min(p.Shared.Burst, p.Shared.Count)
	}
	return p
}

func drawTempo(t *rapid.T, name string) tempo {
	s := tempo{
		Count: rapid.Int64Range(1, 20).Draw(t, name), Seconds: rapid.SampledFrom([]int64{1, 2, 10, 10, 10, 20, 60}).Draw(t, name+" seconds"),
		Burst: rapid.Int64Range(1, 20).Draw(t, name+" burst"), Tokens: rapid.IntRange(0, 2).Draw(t, name+" tokens") == 0,
	}
	if !s.Tokens {
		s.Burst = min(s.Burst, s.Count)
	}
	return s
}

// String returns the play as changesFound lists it.
func (p play) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "{%d, []phase{\n", p.Seed)
	for _, x := range p.Phases {
		fmt.Fprintf(&b, "\t{%d, %d, %d, %d, %v, %v, %q, %q, %v},\n", x.Asks, x.Jitter, x.Headroom, x.Ahead, x.Key, x.B, x.Name, x.Kind, x.Shared)
	}
	b.WriteString("}},")
	return b.String()
}

// String returns the rate as a play lists it.
func (s tempo) String() string {
	if s == (tempo{}) {
		return "tempo{}"
	}
	return fmt.Sprintf("tempo{%d, %d, %d, %t}", s.Count, s.Seconds, s.Burst, s.Tokens)
}

func (s tempo) rate() *bucket.Rate {
	r := &bucket.Rate{Count: s.Count, Per: time.Duration(s.Seconds) * time.Second, Burst: s.Burst, Counts: bucket.ByWindow}
	if s.Tokens {
		r.Counts = bucket.ByTokens
	}
	return r
}

func (p *phase) rules() bucket.Rules {
	r := bucket.Rules{
		Key: bucket.KeyLimits{Rate: *p.Key.rate()}, Jitter: time.Duration(p.Jitter) * time.Millisecond, Headroom: p.Headroom, Lease: time.Second,
	}
	if p.B != (tempo{}) {
		r.Overrides = []bucket.Override{{Pattern: "b", Rate: p.B.rate()}}
	}
	switch p.Kind {
	case "rate", "shadow":
		r.Shared = []bucket.Limit{{Name: p.Name, Rate: p.Shared.rate(), Shadow: p.Kind == "shadow"}}
	case "quota":
		r.Shared = []bucket.Limit{{Name: p.Name, Quota: &bucket.Quota{Count: 30, Window: bucket.Sliding, Per: 10 * time.Second}}}
	}
	return r
}

// run plays p with a store, and checks the calls.
func (p play) run(t testing.TB, fail func(string, ...any), open Open) {
	c := &changing{play: p, fail: fail, rng: rand.New(rand.NewPCG(p.Seed, 1)), clock: Clock{Start}}
	for i := range p.Phases {
		rules := p.Phases[i].rules()
		if c.eras = append(c.eras, era{rules, c.clock.now}); i == 0 {
			c.store = open(t, rules, &c.clock)
		} else {
			c.change(rules)
		}
		c.calls(p.Phases[i].Asks)
	}
	c.hold()
}

// changing is a play under way.
type changing struct {
	play    play
	fail    func(string, ...any)
	store   Store
	clock   Clock
	rng     *rand.Rand
	eras    []era
	made    []changingCall
	granted int
	arrived bucket.Micros // when the last of the granted calls may arrive
}

// changingCall is a call: its slot, the time when it arrived, and the rules under which it was granted.
type changingCall struct {
	key      string
	slot, at bucket.Micros
	era      int
}

// calls asks for slots, asks times in all, and uses most of the granted slots.
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

// call asks for a slot of a key, and returns when to ask again.
func (c *changing) call(key string) bucket.Micros {
	e := len(c.eras) - 1
	rules, ahead := c.eras[e].rules, time.Duration(c.play.Phases[e].Ahead)*time.Millisecond
	got, err := c.store.Reserve(context.Background(), []bucket.Ask{{Key: key, Limits: rules.For(key), Want: 1 + c.rng.IntN(12), Horizon: ahead}})
	if err != nil {
		c.fail("%v: %s", err, c.describe())
	}
	var uses []bucket.Use
	for _, g := range got[0].Grants {
		use := bucket.Use{Key: key, Grant: g, Returned: c.rng.IntN(16) == 0}
		uses, c.granted, c.arrived = append(uses, use), c.granted+1, max(c.arrived, g.At.Add(rules.Jitter))
		if !use.Returned {
			late := c.rng.Int64N(2) * int64(rules.Jitter/time.Microsecond)
			c.made = append(c.made, changingCall{key, g.At, g.At + bucket.Micros(late), e})
		}
	}
	if err := c.store.Settle(context.Background(), uses); err != nil {
		c.fail("%v", err)
	}
	return got[0].Wait.Until
}

// claimed is how many microseconds ahead a checkpoint may claim.
const claimed = 100_000

// change puts rules in force, and then asks for a call of each key. A call that is not granted must not have to wait
// longer than the longest window of the rules, counted from the latest time at which an earlier call may arrive.
func (c *changing) change(rules bucket.Rules) {
	c.arrived = max(c.arrived, c.clock.now.Add(c.eras[len(c.eras)-2].rules.Jitter)+claimed)
	if err := c.store.Apply(rules); err != nil {
		c.fail("%v", err)
	}
	// Some stores take up rules only at their next call.
	if err := c.store.Settle(context.Background(), nil); err != nil {
		c.fail("%v", err)
	}
	longest := bucket.Micros(0)
	for _, r := range c.rates(len(c.eras)-1, "a", "b") {
		longest = max(longest, bucket.Micros((r.Per+rules.Jitter)/time.Microsecond), bucket.Micros(rules.Interval(r).Duration()/time.Microsecond)) + 1
	}
	for _, l := range rules.Shared {
		if l.Quota != nil {
			longest = max(longest, bucket.Micros(l.Quota.Per/time.Microsecond)+500_000)
		}
	}
	for _, key := range []string{"a", "b"} {
		made := c.granted
		if wait := c.call(key); c.granted == made && wait > c.arrived+longest {
			c.fail("key %s waits for %d µs after the last call before a change, longer than the %d µs of the longest window: %s", key, wait-c.arrived, longest, c.describe())
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

// describe returns the play and its calls.
func (c *changing) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%v", c.play)
	for e, x := range c.eras {
		fmt.Fprintf(&b, "\nfrom %d µs, jitter %s, headroom %d: key a %+v, key b %+v", x.from-Start, x.rules.Jitter, x.rules.Headroom, x.rules.For("a").Rate, x.rules.For("b").Rate)
		for _, l := range x.rules.Shared {
			fmt.Fprintf(&b, ", %s %+v %+v shadow %t", l.Name, l.Rate, l.Quota, l.Shadow)
		}
		for _, call := range c.made {
			if call.era == e {
				fmt.Fprintf(&b, " %s@%d+%d", call.key, call.slot-Start, call.at-call.slot)
			}
		}
	}
	return b.String()
}
