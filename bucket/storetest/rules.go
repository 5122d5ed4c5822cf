package storetest

import (
	"time"

	"weir/bucket"
)

var rulesTests = []test{
	{"a raised key rate helps at once", keyRateRaised},
	{"a changed shared rate keeps its debt in units", sharedRateChanged},
	{"a quota keeps its count", quotaKept},
	{"a call of older rules is settled by their costs", olderCosts},
	{"refused rules change nothing", refusedRules},
	{"a shadow limit counts and holds nothing", shadow},
	{"a raised rate keeps its distance from a slot given ahead", raisedBehindASlot},
	{"what a shadow limit did not count is not given back", shadowGivesNothingBack},
}

func keyRateRaised(b *table) {
	slow, quick := keyRate(1, time.Hour, 1), keyRate(3600, time.Hour, 1)
	b.lay(bucket.Rules{Key: slow})
	b.ask(bucket.Ask{})
	if got := b.ask(bucket.Ask{Limits: quick}); got.Wait.Until > Start+1_000_010 || got.Wait.Until < Start+1_000_000 {
		b.Errorf("raised, but waits until %d µs", got.Wait.Until-Start)
	}
	if got := b.ask(bucket.Ask{Limits: slow}); got.Wait.Until < Start+3_600_000_000 {
		b.Errorf("lowered, but waits only until %d µs", got.Wait.Until-Start)
	}
}

func sharedRateChanged(b *table) {
	b.lay(only(sharedRate("account", 1, time.Hour, 1)))
	b.ask(bucket.Ask{})
	b.apply(only(bucket.Limit{Name: "calls", InFlight: 100}, sharedRate("account", 3600, time.Hour, 1)))
	if got := b.ask(bucket.Ask{}); len(got.Grants) != 0 || got.Wait.Until > Start+1_000_010 {
		b.Errorf("%+v", got)
	}
}

func quotaKept(b *table) {
	daily := func(n int64) bucket.Limit {
		return quota("daily", bucket.Quota{Count: n, Window: bucket.Calendar, Unit: bucket.Day, Zone: time.UTC})
	}
	b.lay(only(daily(5)))
	b.ask(bucket.Ask{Want: 4})
	b.apply(only(daily(3)))
	b.expectSlots(b.ask(bucket.Ask{}))
	b.apply(only(daily(6)))
	b.expectSlots(b.ask(bucket.Ask{Want: 9}), 0, 0)
}

func olderCosts(b *table) {
	r := tokens()
	b.lay(r)
	g := b.ask(bucket.Ask{Costs: []int64{100}}).Grants[0]
	b.apply(bucket.Rules{Key: r.Key, Shared: []bucket.Limit{{Name: "calls", InFlight: 5}, r.Shared[0]}})
	b.settle(used(g, 100, 10))
	b.expectSlots(b.ask(bucket.Ask{Costs: []int64{1, 90}}), 0)
}

func refusedRules(b *table) {
	b.lay(only(sharedRate("account", 1, time.Hour, 1)))
	b.ask(bucket.Ask{})
	if err := b.store.Apply(bucket.Rules{}); err == nil {
		b.Error("rules without a rate were accepted")
	}
	b.expectWait(b.ask(bucket.Ask{}), bucket.Wait{Limit: "account", Until: Start + 3_600_000_000})
}

func shadow(b *table) {
	maybe, calls := sharedRate("maybe", 10, time.Second, 3), bucket.Limit{Name: "calls", InFlight: 4, Shadow: true}
	maybe.Shadow = true
	b.lay(only(maybe, calls))
	if n := len(b.ask(bucket.Ask{Want: 10}).Grants); n != 10 {
		b.Errorf("%d of 10 passed", n)
	}
	if h := b.store.ShadowHolds(); h["maybe"] != 7 || h["calls"] != 6 {
		b.Errorf("would have held %v, want maybe 7 and calls 6", h)
	}
}

// raisedBehindASlot: the way to a slot that lies ahead is no debt that a shorter interval could shrink.
func raisedBehindASlot(b *table) {
	b.lay(only(sharedRate("account", 2, time.Second, 1)))
	b.expectSlots(b.ask(bucket.Ask{Want: 2, Horizon: far}), 0, 500_000)
	b.apply(only(sharedRate("account", 10, time.Second, 1)))
	if got := b.ask(bucket.Ask{Horizon: far}).Grants[0].At - Start; got < 600_000 || got > 600_010 {
		b.Errorf("the next slot at %d µs, want 100 ms after the one at 500000", got)
	}
}

// shadowGivesNothingBack: a call that a limit let pass without counting it, and that ends when the limit is in force.
func shadowGivesNothingBack(b *table) {
	watched := func(s string) bucket.Rules {
		l := quota("q", bucket.Quota{Count: 3, Window: bucket.Fixed, Per: time.Hour})
		l.Shadow = s == "watches"
		return only(l)
	}
	b.lay(watched("holds"))
	b.ask(bucket.Ask{Want: 3})
	b.apply(watched("watches"))
	got := b.ask(bucket.Ask{})
	b.expectSlots(got, 0)
	b.apply(watched("holds"))
	b.settle(bucket.Use{Key: "k", Grant: got.Grants[0], Returned: true})
	b.expectSlots(b.ask(bucket.Ask{}))
}
