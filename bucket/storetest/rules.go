package storetest

import (
	"slices"
	"time"

	"weir/bucket"
	"weir/ingest"
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
	{"a raised key rate keeps its distance from a slot given ahead", raisedKeyBehindASlot},
	{"a call of an older rate is given back at no other", olderRateGivenBack},
	{"a quota keeps its count in periods of another unit", quotaOfAnotherUnit},
	{"a day's count goes into the hour that follows it in the rules", dayBecomesAnHour},
	{"an hour that is over counts in its day", hourBecomesItsDay},
	{"a rate that is changed twice remembers the last call", changedTwice},
	{"a rate that began after its calls remembers them for a longer one", begunAfterItsCalls},
	{"a rate that begins counts from when the last call may arrive", begunBehindALateCall},
	{"a key that a store may have forgotten is forgotten by every store", mayBeForgotten},
	{"a key that may be forgotten since two changes is unknown", forgottenTwoChangesAgo},
	{"a key that was never called does not wait for the forgotten", newAmongForgotten},
	{"a window of another kind keeps the count", windowOfAnotherKind},
	{"a period that has just ended counts in a window that slides", slidingAfterAPeriod},
	{"a changed limit counts what was called before", changedAcrossAWindow},
	{"a limit that was taken out counts what was called meanwhile", putBack},
	{"a limit that did not change keeps its state", unchangedKeepsItsState},
	{"a return that comes late takes nothing from younger calls", lateReturn},
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

// raisedBehindASlot checks that a shorter interval does not shorten the time until a slot that lies ahead, because that
// time is no debt.
func raisedBehindASlot(b *table) {
	b.lay(only(sharedRate("account", 2, time.Second, 1)))
	b.expectSlots(b.ask(bucket.Ask{Want: 2, Horizon: far}), 0, 500_000)
	b.apply(only(sharedRate("account", 10, time.Second, 1)))
	if got := b.ask(bucket.Ask{Horizon: far}).Grants[0].At - Start; got < 600_000 || got > 600_010 {
		b.Errorf("the next slot at %d µs, want 100 ms after the one at 500000", got)
	}
}

// shadowGivesNothingBack checks a call that a shadow limit let pass without counting it. The call ends when the limit
// is in force, and gives nothing back.
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

// raisedKeyBehindASlot checks the same as raisedBehindASlot for a key's own rate. For such a rate only the horizon says
// how far ahead slots may lie.
func raisedKeyBehindASlot(b *table) {
	b.lay(bucket.Rules{Key: keyRate(2, time.Second, 1)})
	b.expectSlots(b.ask(bucket.Ask{Want: 2, Horizon: far}), 0, 500_000)
	got := b.ask(bucket.Ask{Limits: keyRate(10, time.Second, 1), Horizon: far})
	if at := got.Grants[0].At - Start; at < 600_000 || at > 600_010 {
		b.Errorf("the next slot at %d µs, want 100 ms after the one at 500000", at)
	}
}

// olderRateGivenBack checks that a call gives nothing back if the bucket has drained since the call, even if only the
// old rate shows that.
func olderRateGivenBack(b *table) {
	account := func(n int64) bucket.Rules {
		l := sharedRate("account", n, time.Second, 2)
		l.Cost = l.Cost.SettledBy(ingest.Source{Header: "X-Cost"})
		return only(l)
	}
	b.lay(account(10))
	g := b.ask(bucket.Ask{}).Grants[0]
	b.clock.now = Start + 300_000
	b.expectSlots(b.ask(bucket.Ask{Want: 2}), 300_000, 300_000)
	b.apply(account(5))
	b.settle(bucket.Use{Key: "k", Grant: g, Returned: true})
	b.clock.now += 1000 // more than what is rounded up
	b.expectSlots(b.ask(bucket.Ask{}))
}

func calendarQuota(n int64, unit bucket.Unit) bucket.Rules {
	return only(quota("calendar", bucket.Quota{Count: n, Window: bucket.Calendar, Unit: unit, Zone: time.UTC}))
}

// dayBecomesAnHour checks that the store does not confuse a day with its first hour, which begins at the same time.
func dayBecomesAnHour(b *table) {
	b.lay(calendarQuota(2, bucket.Day))
	b.ask(bucket.Ask{Want: 2})
	b.apply(calendarQuota(2, bucket.Hour))
	b.expectWait(b.ask(bucket.Ask{}), bucket.Wait{Limit: "calendar", Until: Start.Add(time.Hour)})
	b.clock.now = Start.Add(time.Hour)
	b.expectSlots(b.ask(bucket.Ask{}), 3600_000_000)
}

func hourBecomesItsDay(b *table) {
	b.lay(calendarQuota(2, bucket.Hour))
	b.ask(bucket.Ask{Want: 2})
	b.clock.now = Start.Add(90 * time.Minute)
	b.apply(calendarQuota(2, bucket.Day))
	b.expectWait(b.ask(bucket.Ask{}), bucket.Wait{Limit: "calendar", Until: Start.Add(16 * time.Hour)})
}

func quotaOfAnotherUnit(b *table) {
	of := func(u bucket.Unit) bucket.Rules {
		return only(quota("q", bucket.Quota{Count: 5, Window: bucket.Calendar, Unit: u, Zone: time.UTC}))
	}
	b.lay(of(bucket.Day))
	b.ask(bucket.Ask{Want: 4})
	b.apply(of(bucket.Hour))
	b.expectSlots(b.ask(bucket.Ask{Want: 9}), 0)
	b.apply(of(bucket.Month))
	b.expectSlots(b.ask(bucket.Ask{Want: 9}))
}

// windowOfAnotherKind changes a quota's window, and changes it back.
func windowOfAnotherKind(b *table) {
	fixed := bucket.Quota{Count: 10, Window: bucket.Fixed, Per: 3 * time.Hour}
	slides := bucket.Quota{Count: 10, Window: bucket.Sliding, Per: 3 * time.Hour}
	daily := bucket.Quota{Count: 10, Window: bucket.Calendar, Unit: bucket.Day, Zone: time.UTC}
	for _, c := range []struct{ from, to bucket.Quota }{{fixed, slides}, {slides, fixed}, {daily, slides}, {slides, daily}} {
		b.lay(only(quota("q", c.from)))
		b.clock.now = Start + 3_600_000_000
		got := []int{len(b.ask(bucket.Ask{Want: 7}).Grants)}
		b.clock.now += 1_000_000
		b.apply(only(quota("q", c.to)))
		got = append(got, len(b.ask(bucket.Ask{Want: 2}).Grants))
		b.clock.now += 1_000_000
		b.apply(only(quota("q", c.from)))
		got = append(got, len(b.ask(bucket.Ask{Want: 9}).Grants))
		if !slices.Equal(got, []int{7, 2, 1}) {
			b.Errorf("from %s to %s and back: %v calls of 10", c.from.Window, c.to.Window, got)
		}
	}
}

// slidingAfterAPeriod checks calls at the very end of an hour. They count in a sliding hour for nearly one more hour.
func slidingAfterAPeriod(b *table) {
	hourly := bucket.Quota{Count: 5, Window: bucket.Fixed, Per: time.Hour}
	b.lay(only(quota("q", hourly)))
	_, end := hourly.Period(Start)
	b.clock.now = end - 1
	b.ask(bucket.Ask{Want: 4})
	b.clock.now = end + 60_000_000
	b.apply(only(quota("q", bucket.Quota{Count: 5, Window: bucket.Sliding, Per: time.Hour})))
	if n := len(b.ask(bucket.Ask{Want: 9}).Grants); n != 1 {
		b.Errorf("%d calls a minute after four of five of an hour", n)
	}
}

// lateReturn returns the oldest of many calls, and then takes all slots that it can get for more than a window.
func lateReturn(b *table) {
	const most = 100
	hourly := bucket.Quota{Count: most, Window: bucket.Sliding, Per: time.Hour}
	rules := only(quota("q", hourly))
	rules.Lease = 2 * time.Hour // the oldest call is still open
	b.lay(rules)
	var made []bucket.Arrival
	ask := func() (got bucket.Answer) {
		got = b.ask(bucket.Ask{})
		for _, g := range got.Grants {
			made = append(made, bucket.Arrival{At: int64(g.At) * 1000})
		}
		return got
	}
	first := b.ask(bucket.Ask{}).Grants[0]
	for len(made) < most-1 {
		b.clock.now += 20_000_000
		ask()
	}
	b.settle(bucket.Use{Key: "k", Grant: first, Returned: true})
	for range 500 {
		b.clock.now += 10_000_000
		ask()
	}
	if v := bucket.Check(made, bucket.Expectation{Limit: quota("q", hourly)}); v.Outcome != bucket.Pass || v.Calls < 2*most-2 {
		b.Errorf("%s", v)
	}
}

// limitChanges are changes from rules to other rules that are not looser. Calls that were made shortly before the
// change count under both. Calls are made for the time busy before the change. No window of length per may hold more
// than most calls.
var limitChanges = []struct {
	name         string
	before, then bucket.Rules
	busy, per    time.Duration
	most         int
}{
	{"a key's burst is raised", bucket.Rules{Key: windowed(10, 10, 1)}, bucket.Rules{Key: windowed(10, 10, 10)}, 30 * time.Second, 10 * time.Second, 10},
	{"an override raises the burst", bucket.Rules{Key: windowed(10, 10, 1)}, overriding(windowed(10, 10, 1), windowed(10, 10, 10)), 30 * time.Second, 10 * time.Second, 10},
	{"a limit's burst is raised", only(windowedLimit("a", 10, 10, 1)), only(windowedLimit("a", 10, 10, 10)), 30 * time.Second, 10 * time.Second, 10},
	{"a limit is renamed", only(windowedLimit("a", 10, 10, 10)), only(windowedLimit("b", 10, 10, 10)), 0, 10 * time.Second, 10},
	{"a quota becomes a rate", only(quota("a", bucket.Quota{Count: 10, Window: bucket.Fixed, Per: 10 * time.Second})), only(windowedLimit("a", 10, 10, 10)), 0, 10 * time.Second, 10},
	{"a minute in place of a second", bucket.Rules{Key: windowed(1, 1, 1)}, bucket.Rules{Key: windowed(60, 60, 60)}, 2 * time.Minute, time.Minute, 60},
	{
		"a token bucket becomes a window",
		bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 10, Per: 10 * time.Second, Burst: 3, Counts: bucket.ByTokens}}},
		bucket.Rules{Key: windowed(10, 10, 3)},
		0, 10 * time.Second, 10,
	},
	{"half the period", bucket.Rules{Key: windowed(10, 20, 5)}, bucket.Rules{Key: windowed(10, 10, 5)}, 0, 10 * time.Second, 10},
}

func windowed(count, seconds, burst int64) bucket.KeyLimits {
	return bucket.KeyLimits{Rate: bucket.Rate{Count: count, Per: time.Duration(seconds) * time.Second, Burst: burst, Counts: bucket.ByWindow}}
}

func windowedLimit(name string, count, seconds, burst int64) bucket.Limit {
	rate := windowed(count, seconds, burst).Rate
	return bucket.Limit{Name: name, Rate: &rate}
}

func overriding(of, by bucket.KeyLimits) bucket.Rules {
	return bucket.Rules{Key: of, Overrides: []bucket.Override{{Pattern: "k", Rate: &by.Rate}}}
}

// changedAcrossAWindow makes calls as fast as the store lets it, and changes the rules one second after busy.
func changedAcrossAWindow(b *table) {
	for _, c := range limitChanges {
		b.lay(c.before)
		var made []bucket.Arrival
		run := func(until bucket.Micros) {
			for b.clock.now < until {
				got := b.ask(bucket.Ask{Limits: b.rules.For("k"), Want: 64})
				for _, g := range got.Grants {
					made = append(made, bucket.Arrival{At: int64(g.At) * 1000})
				}
				b.clock.now = max(b.clock.now+1, min(until, got.Wait.Until))
			}
		}
		run(Start.Add(c.busy + time.Second))
		turned := b.clock.now
		b.apply(c.then)
		run(turned.Add(4 * c.per))
		if v := bucket.Check(made, bucket.Expectation{Limit: quota("window", bucket.Quota{Count: int64(c.most), Window: bucket.Sliding, Per: c.per})}); v.Outcome != bucket.Pass {
			b.Errorf("%s: %s", c.name, v)
		}
		if last := made[len(made)-1].At; last <= int64(turned)*1000 {
			b.Errorf("%s: nothing was called since", c.name)
		}
	}
}

// putBack makes as many calls as a limit allows, takes the limit out of the rules, and puts it back.
func putBack(b *table) {
	limited := only(windowedLimit("a", 10, 10, 10))
	b.lay(limited)
	b.expectSlots(b.ask(bucket.Ask{Want: 10}), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	b.apply(only())
	b.settle()
	b.clock.now++
	b.ask(bucket.Ask{Key: "another"})
	b.apply(limited)
	if got := b.ask(bucket.Ask{}); len(got.Grants) != 0 || got.Wait.Until > b.clock.now+10_000_000 {
		b.Errorf("%+v", got)
	}
}

// unchangedKeepsItsState changes everything except one limit and one key, and checks that these keep their state.
func unchangedKeepsItsState(b *table) {
	other := windowedLimit("other", 100, 10, 10)
	rules := func(n int64) bucket.Rules {
		r := overriding(windowed(n, 60, 1), windowed(5, 10, 2))
		r.Shared = []bucket.Limit{windowedLimit("a", n*10, 60, 1), other}
		return r
	}
	b.lay(rules(600))
	b.expectSlots(b.ask(bucket.Ask{Limits: b.rules.For("k"), Want: 2}), 0)
	b.clock.now += 20_000_000
	b.apply(rules(900))
	b.expectSlots(b.ask(bucket.Ask{Limits: b.rules.For("k")}), 20_000_000)
	b.clock.now += 1_000_000
	b.expectSlots(b.ask(bucket.Ask{Limits: b.rules.For("k")}), 21_000_000)
}
