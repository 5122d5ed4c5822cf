package storetest

import (
	"cmp"
	"context"
	"slices"
	"time"

	"weir/bucket"

	"pgregory.net/rapid"
)

// turn is a change of rules while a scene plays.
type turn struct {
	after time.Duration
	rules bucket.Rules
}

// era is the time in which one set of rules is in force, by the store's clock.
type era struct {
	rules bucket.Rules
	from  bucket.Micros
}

// turn puts new rules in force. Then every key asks again, because the time that the former rules named for it may be
// wrong now.
func (s *scene) turn(rules bucket.Rules) {
	if err := s.store.Apply(rules); err != nil {
		s.t.Fatal(err)
	}
	// Some stores carry debts over only at their next call.
	if err := s.store.Settle(context.Background(), nil); err != nil {
		s.t.Fatal(err)
	}
	s.rules, s.seen = rules, max(s.seen, s.clock.now)
	s.eras = append(s.eras, era{rules, s.seen})
	s.askAll()
}

// turnsOf draws some changes of a plan's rules, in order.
func turnsOf(t *rapid.T, p plan, next func(*rapid.T, plan) bucket.Rules) []turn {
	turns := make([]turn, rapid.IntRange(1, 4).Draw(t, "turns"))
	for i := range turns {
		turns[i] = turn{time.Duration(rapid.Int64Range(0, int64(p.length)).Draw(t, "after")), next(t, p)}
	}
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Compare(a.after, b.after) })
	return turns
}

// turningPlan is any plan under rules that are raised, lowered and turned into shadow limits.
func turningPlan(t *rapid.T) plan {
	p := anyPlan(t)
	p.turns = turnsOf(t, p, turned)
	return p
}

// busyTurningPlan has jobs always waiting, and only rates, because no formula says what several changing quotas allow
// together. Slots are taken when they are due, because the time until a slot ahead counts as debt when a rate is
// lowered.
func busyTurningPlan(t *rapid.T) plan {
	p := busyPlan(t)
	p.horizon = 0
	p.rules.Shared = slices.Clone(p.rules.Shared)
	for i, l := range p.rules.Shared {
		if l.Rate == nil {
			r := anyRate(t, l.Name+" instead")
			r.Burst = max(r.Burst, p.costs[i])
			p.rules.Shared[i] = bucket.Limit{Name: l.Name, Rate: &r}
		}
	}
	p.turns = turnsOf(t, p, turned)
	return p
}

// turned returns the same limits with other counts and bursts and another headroom. Some become shadow limits.
func turned(t *rapid.T, p plan) bucket.Rules {
	r := p.rules
	scale := func(n int64, name string) int64 { return max(1, n*rapid.Int64Range(1, 16).Draw(t, name)/4) }
	r.Headroom = rapid.SampledFrom([]int64{r.Headroom, 0, 30}).Draw(t, "other headroom")
	r.Key.Rate.Count = scale(r.Key.Rate.Count, "key count")
	r.Key.Rate.Burst = scale(r.Key.Rate.Burst, "key burst")
	shared := slices.Clone(r.Shared)
	for i := range shared {
		l := &shared[i]
		l.Shadow = rapid.IntRange(0, 4).Draw(t, l.Name+" shadow") == 0
		switch {
		case l.Rate != nil:
			rate := *l.Rate
			rate.Count = scale(rate.Count, l.Name+" count")
			rate.Burst = max(p.costs[i], scale(rate.Burst, l.Name+" burst"))
			l.Rate = &rate
		case l.Quota != nil:
			q := *l.Quota
			q.Count = max(p.costs[i]*2, scale(q.Count, l.Name+" count"))
			l.Quota = &q
		default:
			l.InFlight = scale(l.InFlight, l.Name+" in flight")
		}
	}
	r.Shared = shared
	return r
}
