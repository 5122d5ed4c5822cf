package storetest

import (
	"slices"
	"testing"
	"time"

	"weir/bucket"

	"pgregory.net/rapid"
)

// returns plays random asks, calls and returned slots of one key. It compares every slot with a model that begins anew
// for each ask, and checks the calls against every window.
func returns(t *testing.T, open Open, scenes int) {
	for left := scenes; left > 0; left -= 100 {
		played := 0
		rapid.Check(t, func(rt *rapid.T) {
			if played++; played > left {
				return
			}
			p := &returning{table: &table{T: t, open: open}}
			rate := bucket.Rate{Count: rapid.Int64Range(1, 20).Draw(rt, "count"), Per: time.Second, Counts: bucket.ByTokens}
			rate.Burst = rapid.Int64Range(1, 12).Draw(rt, "burst")
			if rapid.Bool().Draw(rt, "by window") {
				rate.Count, rate.Counts = rate.Count+rate.Burst, bucket.ByWindow
			}
			p.lay(bucket.Rules{Key: bucket.KeyLimits{Rate: rate}})
			p.each = bucket.Micros(p.rules.Interval(rate).P) // a whole number for these rates
			rt.Repeat(map[string]func(*rapid.T){
				"ask": p.request, "wait": p.wait, "call": p.call, "return": p.giveBack, "": p.windows,
			})
		})
	}
}

// returning is one play of returns.
type returning struct {
	*table
	each     bucket.Micros  // the interval
	standing []bucket.Grant // the grants that did not come back, in the order of granting
	unused   []*unused
	calls    []bucket.Arrival
}

// unused is a grant without a call. It may be returned again.
type unused struct {
	bucket.Grant
	returned bool
}

// slot returns the slot of the next call if only the standing grants, and those in also, had ever been granted.
func (p *returning) slot(also []bucket.Grant) bucket.Micros {
	tat := bucket.Micros(0)
	for _, g := range slices.Concat(p.standing, also) {
		tat = max(tat, g.At) + p.each
	}
	return max(p.clock.now, tat-p.each*bucket.Micros(p.rules.Burst(p.rules.Key.Rate)-1))
}

func (p *returning) request(rt *rapid.T) {
	ahead := time.Duration(rapid.IntRange(0, 3000).Draw(rt, "ms ahead")) * time.Millisecond
	a := bucket.Ask{Want: rapid.IntRange(1, 3).Draw(rt, "want"), Horizon: ahead}
	got := p.ask(a).Grants
	for i := range a.Want {
		at := p.slot(got[:min(i, len(got))])
		due := at <= p.clock.now.Add(a.Horizon)
		if due != (i < len(got)) || due && got[i].At != at {
			rt.Fatalf("slot %d of %d is at %d µs, and at %d %+v were granted", i+1, a.Want, at-Start, p.clock.now-Start, got)
		}
	}
	p.standing = append(p.standing, got...)
	for _, g := range got {
		p.unused = append(p.unused, &unused{Grant: g})
	}
}

func (p *returning) wait(rt *rapid.T) {
	p.clock.now += bucket.Micros(rapid.Int64Range(1, 2*int64(p.each)).Draw(rt, "wait"))
}

// pick returns the index of a random grant without a call.
func (p *returning) pick(rt *rapid.T) int {
	if len(p.unused) == 0 {
		rt.Skip("no grant")
	}
	return rapid.IntRange(0, len(p.unused)-1).Draw(rt, "grant")
}

func (p *returning) call(rt *rapid.T) {
	i := p.pick(rt)
	if g := p.unused[i]; g.At <= p.clock.now && !g.returned {
		p.calls = append(p.calls, bucket.Arrival{At: int64(g.At) * 1000, Cost: 1})
		p.unused = slices.Delete(p.unused, i, i+1)
	}
}

// giveBack returns a grant, alone or with all later ones, newest first. A grant comes back only if it is the newest at
// that time.
func (p *returning) giveBack(rt *rapid.T) {
	back := p.unused[p.pick(rt):]
	if rapid.Bool().Draw(rt, "alone") {
		back = back[:1]
	}
	var uses []bucket.Use
	for _, g := range slices.Backward(back) {
		g.returned = true
		uses = append(uses, bucket.Use{Key: "k", Grant: g.Grant, Returned: true})
		if last := len(p.standing) - 1; last >= 0 && p.standing[last].Serial == g.Serial {
			p.standing = p.standing[:last]
		}
	}
	p.settle(uses...)
}

func (p *returning) windows(rt *rapid.T) {
	if v := bucket.Check(p.calls, bucket.Expectation{Limit: bucket.Limit{Rate: &p.rules.Key.Rate}}); v.Outcome != bucket.Pass {
		rt.Fatalf("%+v: %v", p.rules.Key.Rate, v)
	}
}
