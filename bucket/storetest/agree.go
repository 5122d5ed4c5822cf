package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"weir/bucket"

	"pgregory.net/rapid"
)

// Agree plays the same random schedules, with changes of rules, to two stores. It checks that all answers are equal to
// the microsecond.
func Agree(t *testing.T, one, other Open, scenes int) {
	for _, c := range []struct {
		name string
		plan func(*rapid.T) plan
	}{{"any", anyPlan}, {"returns", returnsPlan}, {"refunds", refundsPlan}, {"overages", overagesPlan}} {
		t.Run(c.name, func(t *testing.T) {
			played := 0
			rapid.Check(t, func(rt *rapid.T) {
				if played++; played > scenes {
					return
				}
				p := c.plan(rt)
				both := func(t testing.TB, rules bucket.Rules, clock *Clock) Store {
					return &pair{fail: rt.Fatalf, one: one(t, rules, clock), other: other(t, rules, clock), numbers: map[int64]int64{}}
				}
				p.length *= 2
				p.turns = turnsOf(rt, p, changed)
				s := newScene(t, both, p, rapid.Uint64().Draw(rt, "seed"))
				s.play()
				two := s.store.(*pair)
				if x, y := two.one.ShadowHolds(), two.other.ShadowHolds(); !reflect.DeepEqual(x, y) {
					rt.Fatalf("would have held %v and %v", x, y)
				}
			})
		})
	}
	t.Run("changes", func(t *testing.T) {
		Changes(t, func(t testing.TB, rules bucket.Rules, clock *Clock) Store {
			p := &pair{one: one(t, rules, clock), other: other(t, rules, clock), numbers: map[int64]int64{}}
			p.fail = func(format string, args ...any) { p.differ = errors.Join(p.differ, fmt.Errorf(format, args...)) }
			return &renaming{pair: p}
		}, scenes)
	})
}

// renaming gives every quota a new name with every change of rules. If a quota is taken out and put back, its count
// depends on the store, unless the ledger's sums are used.
type renaming struct {
	*pair
	changes int
}

// Apply implements Store.
func (r *renaming) Apply(rules bucket.Rules) error {
	r.changes++
	rules.Shared = slices.Clone(rules.Shared)
	for i := range rules.Shared {
		if l := &rules.Shared[i]; l.Quota != nil {
			l.Name = fmt.Sprint(l.Name, r.changes)
		}
	}
	return r.pair.Apply(rules)
}

// changed returns the same limits with counts of another order of magnitude. Calendar quotas may also have another
// unit.
func changed(t *rapid.T, p plan) bucket.Rules {
	r := p.rules
	r.Key.Rate.Count = max(1, r.Key.Rate.Count*rapid.Int64Range(1, 8).Draw(t, "key rate")/4)
	shared := make([]bucket.Limit, len(r.Shared))
	for i, l := range r.Shared {
		factor := rapid.Int64Range(2, 8).Draw(t, l.Name)
		switch {
		case l.Rate != nil:
			rate := *l.Rate
			rate.Count = max(1, rate.Count*factor/4)
			l.Rate = &rate
		case l.Quota != nil && l.Quota.Window == bucket.Calendar:
			q := *l.Quota
			q.Unit = rapid.SampledFrom([]bucket.Unit{bucket.Hour, bucket.Day}).Draw(t, "unit")
			q.Count += factor
			l.Quota = &q
		}
		shared[i] = l
	}
	r.Shared = shared
	return r
}

// pair is a store that drives two stores and fails if they differ.
type pair struct {
	fail       func(string, ...any)
	one, other Store
	differ     error
	numbers    map[int64]int64 // serials of the other store, by the serials of one
}

func (p *pair) Reserve(ctx context.Context, asks []bucket.Ask) ([]bucket.Answer, error) {
	a, err := p.one.Reserve(ctx, asks)
	b, otherErr := p.other.Reserve(ctx, asks)
	if err != nil || otherErr != nil {
		p.fail("reserve: %v, %v", err, otherErr)
		return nil, err
	}
	for i := range a {
		// Stores may number their grants differently.
		if x, y := unnumbered(a[i]), unnumbered(b[i]); !reflect.DeepEqual(x, y) {
			p.fail("asked %+v\none   %+v\nother %+v", asks[i], x, y)
		}
	}
	for i := range a {
		if len(a[i].Grants) != len(b[i].Grants) {
			return a, p.differ
		}
		for j, g := range a[i].Grants {
			other := b[i].Grants[j]
			if other.Before != p.numbers[g.Before] {
				p.fail("before %+v one gave %d, which is %d of the other's, and the other %d", g, g.Before, p.numbers[g.Before], other.Before)
			}
			p.numbers[g.Serial] = other.Serial
		}
	}
	return a, p.differ
}

func unnumbered(a bucket.Answer) bucket.Answer {
	var grants []bucket.Grant
	for _, g := range a.Grants {
		g.Serial, g.Before = 0, 0
		grants = append(grants, g)
	}
	a.Grants = grants
	return a
}

func (p *pair) Settle(ctx context.Context, uses []bucket.Use) error {
	if err := p.one.Settle(ctx, uses); err != nil {
		return err
	}
	theirs := make([]bucket.Use, len(uses))
	for i, u := range uses {
		u.Grant.Serial, u.Grant.Before = p.numbers[u.Grant.Serial], p.numbers[u.Grant.Before]
		theirs[i] = u
	}
	return p.other.Settle(ctx, theirs)
}

func (p *pair) Apply(r bucket.Rules) error {
	return errors.Join(p.one.Apply(r), p.other.Apply(r))
}

func (p *pair) ShadowHolds() map[string]int64 { return p.one.ShadowHolds() }
