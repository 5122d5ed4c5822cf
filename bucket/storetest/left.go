package storetest

import (
	"time"

	"weir/bucket"
	"weir/ingest"
)

var leftTests = []test{
	{"less left than counted holds calls until then, and no longer", leftUntil},
	{"as much left as counted changes nothing", leftEnough},
	{"the answer of the newest call decides, whenever it comes", leftOutOfOrder},
	{"calls granted after the answered one are not in its figure", leftSince},
	{"a later answer replaces a former one", leftReplaced},
	{"without a time it lasts until the quota's period ends", leftOfPeriod},
	{"a sliding quota gets its own units back meanwhile", leftSliding},
	{"a token bucket", leftTokens},
	{"no longer than one period", leftCapped},
	{"a time that has passed says nothing", leftPassed},
	{"an uncertain end begins nothing that its uncertainty explains", leftUncertain},
	{"headroom stays free of what the vendor has left", leftHeadroom},
	{"a slot that is returned may be granted again", leftReturned},
	{"an overage takes from what is left", leftOverage},
	{"a change of other limits keeps it, and any change of its own limit ends it", leftApplied},
	{"taking the header away and putting it back ends it", leftTakenAway},
	{"an answer that is later than the earliest end begins nothing", leftLate},
	{"what calls under way gave back is no other program's", leftRefunded},
	{"what a call took beyond its estimate is no other program's", leftOverdrawn},
	{"a day's answer says nothing about the next day", leftOfYesterday},
	{"a call that costs more than is left waits", leftCosts},
}

// reading returns the limit with a header in which answers say what is left of it.
func reading(l bucket.Limit) bucket.Limit {
	l.Left, l.LeftUntil = ingest.Source{Header: "X-Left"}, ingest.Source{Header: "X-Left-Until"}
	return l
}

// perSecond returns rules with a shared rate of one call a second, counted in a minute. Answers say what is left of it.
func perSecond() bucket.Rules { return only(reading(sharedRate("account", 60, time.Minute, 1))) }

const second = bucket.Micros(1_000_000)

// answered returns the end of a call whose answer says that units are left, and that they are for the time until Start
// plus until. If until is 0, the answer does not say until when.
func answered(g bucket.Grant, units int64, until bucket.Micros) bucket.Use {
	l := bucket.Left{Valid: true, Units: units}
	if until != 0 {
		l.Until, l.Least = Start+until, Start+until
	}
	return bucket.Use{Key: "k", Grant: g, Left: []bucket.Left{l}}
}

// seconds compares the slots granted, in seconds after Start.
func (b *table) seconds(got bucket.Answer, want ...int64) {
	b.Helper()
	for i := range want {
		want[i] *= int64(second)
	}
	b.expectSlots(got, want...)
}

func leftUntil(b *table) {
	b.lay(perSecond())
	b.settle(answered(b.ask(bucket.Ask{}).Grants[0], 5, 30*second))
	b.seconds(b.ask(bucket.Ask{Want: 8, Horizon: far}), 1, 2, 3, 4, 5, 30, 31, 32)
	b.lay(perSecond())
	b.settle(answered(b.ask(bucket.Ask{}).Grants[0], 0, 30*second))
	b.expectWait(b.ask(bucket.Ask{}), bucket.Wait{Limit: "account", Until: Start + 30*second, Excess: 29})
	b.clock.now = Start + 30*second - 1
	b.seconds(b.ask(bucket.Ask{}))
	b.clock.now = Start + 30*second
	b.seconds(b.ask(bucket.Ask{}), 30)
}

func leftEnough(b *table) {
	for _, l := range []bucket.Limit{
		sharedRate("account", 60, time.Minute, 1), sharedRate("account", 60, time.Minute, 20),
		{Name: "account", Rate: &bucket.Rate{Count: 60, Per: time.Minute, Burst: 60, Counts: bucket.ByTokens}},
		quota("account", bucket.Quota{Count: 60, Window: bucket.Fixed, Per: time.Minute}),
		quota("account", bucket.Quota{Count: 60, Window: bucket.Sliding, Per: time.Minute}),
		quota("account", bucket.Quota{Count: 60, Window: bucket.Calendar, Unit: bucket.Hour, Zone: time.UTC}),
	} {
		for _, until := range []bucket.Micros{0, 60 * second} {
			b.lay(only(l))
			want := b.ask(bucket.Ask{Want: 64, Horizon: far})
			b.lay(only(reading(l)))
			for i, g := range b.ask(bucket.Ask{Want: 10, Horizon: far}).Grants {
				b.settle(answered(g, 59-int64(i), until))
			}
			got := b.ask(bucket.Ask{Want: 54, Horizon: far})
			for i, g := range got.Grants {
				if at := want.Grants[10+i].At; g.At != at {
					b.Errorf("%+v until %d: slot %d at %d, want %d", l, until, i, g.At-Start, at-Start)
					break
				}
			}
			if len(got.Grants) != 54 {
				b.Errorf("%+v until %d: %d slots, want 54: %+v", l, until, len(got.Grants), got.Wait)
			}
		}
	}
}

func leftOutOfOrder(b *table) {
	b.lay(perSecond())
	got := b.ask(bucket.Ask{Want: 2, Horizon: far}).Grants
	b.settle(answered(got[1], 3, 30*second))
	b.settle(answered(got[0], 0, 30*second))
	b.settle(answered(got[1], 0, 30*second)) // as a retried round trip does
	b.seconds(b.ask(bucket.Ask{Want: 4, Horizon: far}), 2, 3, 4, 30)
}

func leftSince(b *table) {
	b.lay(perSecond())
	got := b.ask(bucket.Ask{Want: 3, Horizon: far}).Grants
	b.settle(answered(got[0], 4, 30*second))
	b.seconds(b.ask(bucket.Ask{Want: 3, Horizon: far}), 3, 4, 30)
}

func leftReplaced(b *table) {
	b.lay(perSecond())
	b.settle(answered(b.ask(bucket.Ask{}).Grants[0], 2, 30*second))
	b.clock.now += second
	b.settle(answered(b.ask(bucket.Ask{}).Grants[0], 9, 20*second)) // replaced, and not added to
	b.seconds(b.ask(bucket.Ask{Want: 3, Horizon: far}), 2, 3, 4)
	b.lay(perSecond())
	b.settle(answered(b.ask(bucket.Ask{}).Grants[0], 2, 30*second))
	b.clock.now += second
	b.settle(answered(b.ask(bucket.Ask{}).Grants[0], 58, 30*second)) // the other program's calls no longer count
	b.seconds(b.ask(bucket.Ask{Want: 4, Horizon: far}), 2, 3, 4, 5)
}

func leftOfPeriod(b *table) {
	for _, q := range []bucket.Quota{
		{Count: 10, Window: bucket.Fixed, Per: time.Hour},
		{Count: 10, Window: bucket.Calendar, Unit: bucket.Hour, Zone: time.UTC},
	} {
		b.lay(only(reading(quota("q", q))))
		b.settle(answered(b.ask(bucket.Ask{}).Grants[0], 4, 0))
		b.seconds(b.ask(bucket.Ask{Want: 6, Horizon: 2 * time.Hour}), 0, 0, 0, 0, 3600, 3600)
	}
}

func leftSliding(b *table) {
	b.lay(only(reading(quota("q", bucket.Quota{Count: 10, Window: bucket.Sliding, Per: time.Minute}))))
	b.ask(bucket.Ask{Want: 3})
	b.clock.now += 10 * second
	b.settle(answered(b.ask(bucket.Ask{}).Grants[0], 2, 0)) // four of the ten are another program's
	b.seconds(b.ask(bucket.Ask{Want: 6, Horizon: far}), 10, 10, 60, 60, 60, 70)
	// Units that became too old while the call ran are not another program's.
	b.lay(only(reading(quota("q", bucket.Quota{Count: 10, Window: bucket.Sliding, Per: time.Minute}))))
	b.ask(bucket.Ask{Want: 8})
	b.clock.now += 59 * second
	g := b.ask(bucket.Ask{}).Grants[0]
	b.clock.now += 2 * second
	b.settle(answered(g, 1, 0))
	b.seconds(b.ask(bucket.Ask{Want: 9, Horizon: far}), 61, 61, 61, 61, 61, 61, 61, 61, 61)
}

func leftTokens(b *table) {
	r := bucket.Rate{Count: 60, Per: time.Minute, Burst: 10, Counts: bucket.ByTokens}
	b.lay(only(reading(bucket.Limit{Name: "account", Rate: &r})))
	b.settle(answered(b.ask(bucket.Ask{}).Grants[0], 3, 30*second))
	b.seconds(b.ask(bucket.Ask{Want: 5, Horizon: far}), 0, 0, 0, 30, 30)
}

func leftCapped(b *table) {
	b.lay(perSecond())
	b.settle(answered(b.ask(bucket.Ask{}).Grants[0], 2, 36_000*second))
	b.seconds(b.ask(bucket.Ask{Want: 3, Horizon: far}), 1, 2, 60)
}

func leftPassed(b *table) {
	b.lay(perSecond())
	g := b.ask(bucket.Ask{}).Grants[0]
	b.clock.now += 30 * second
	b.settle(answered(g, 0, 30*second))
	b.seconds(b.ask(bucket.Ask{Want: 2, Horizon: far}), 30, 31)
}

func leftUncertain(b *table) {
	b.lay(perSecond())
	u := answered(b.ask(bucket.Ask{}).Grants[0], 8, 10*second)
	u.Left[0].Least = Start + 9*second // until then eight more start
	b.settle(u)
	b.seconds(b.ask(bucket.Ask{Want: 10, Horizon: far}), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	b.lay(perSecond())
	u = answered(b.ask(bucket.Ask{}).Grants[0], 7, 10*second)
	u.Left[0].Least = Start + 9*second
	b.settle(u)
	b.seconds(b.ask(bucket.Ask{Want: 8, Horizon: far}), 1, 2, 3, 4, 5, 6, 7, 10)
}

func leftHeadroom(b *table) {
	r := only(reading(quota("q", bucket.Quota{Count: 10, Window: bucket.Fixed, Per: time.Hour})))
	r.Headroom = 20
	b.lay(r)
	b.settle(answered(b.ask(bucket.Ask{}).Grants[0], 5, 0))
	b.seconds(b.ask(bucket.Ask{Want: 5}), 0, 0, 0)
}

func leftReturned(b *table) {
	b.lay(perSecond())
	b.settle(answered(b.ask(bucket.Ask{}).Grants[0], 2, 30*second))
	got := b.ask(bucket.Ask{Want: 2, Horizon: far}).Grants
	use := bucket.Use{Key: "k", Grant: got[1], Returned: true}
	b.settle(use, use)
	b.seconds(b.ask(bucket.Ask{Want: 2, Horizon: far}), 2, 30)
}

func leftOverage(b *table) {
	b.lay(only(reading(quota("q", bucket.Quota{Count: 100, Window: bucket.Fixed, Per: time.Hour}))))
	b.settle(answered(b.ask(bucket.Ask{}).Grants[0], 10, 0))
	b.settle(used(b.ask(bucket.Ask{Costs: []int64{2}}).Grants[0], 2, 5))
	b.settle(used(b.ask(bucket.Ask{Costs: []int64{2}}).Grants[0], 2, 1))
	b.seconds(b.ask(bucket.Ask{Want: 10}), 0, 0, 0, 0)
}

// granted returns how many of want slots are granted within 20 s.
func (b *table) granted(want int) int {
	b.Helper()
	return len(b.ask(bucket.Ask{Want: want, Horizon: 20 * time.Second}).Grants)
}

func leftApplied(b *table) {
	b.lay(perSecond())
	got := b.ask(bucket.Ask{Want: 2, Horizon: far}).Grants
	b.settle(answered(got[1], 1, 30*second))
	b.apply(only(perSecond().Shared[0], sharedRate("other", 1000, time.Second, 100)))
	if n := b.granted(5); n != 1 {
		b.Errorf("%d slots after a change of another limit, want the one that is left", n)
	}
	faster := reading(sharedRate("account", 90, time.Minute, 1))
	b.apply(only(faster))
	if n := b.granted(5); n != 5 {
		b.Errorf("%d slots after a change of the rate, want 5", n)
	}
	b.settle(answered(got[0], 0, 30*second)) // it was granted before
	if n := b.granted(3); n != 3 {
		b.Errorf("%d slots after an answer about the former rate, want 3", n)
	}
	b.settle(answered(b.ask(bucket.Ask{Horizon: far}).Grants[0], 0, 30*second))
	other := faster
	other.Left.Header = "X-Other"
	b.apply(only(other))
	if n := b.granted(3); n != 3 {
		b.Errorf("%d slots after another header is read, want 3", n)
	}
}

func leftTakenAway(b *table) {
	b.lay(perSecond())
	b.settle(answered(b.ask(bucket.Ask{}).Grants[0], 0, 30*second))
	late := sharedRate("account", 60, time.Minute, 1)
	b.apply(only(late))
	if n := b.granted(2); n != 2 {
		b.Errorf("%d slots of a limit of which no answer says any more what is left, want 2", n)
	}
	b.apply(perSecond())
	if n := b.granted(2); n != 2 {
		b.Errorf("%d slots after the header is read again, want 2", n)
	}
}

func leftLate(b *table) {
	b.lay(only(reading(sharedRate("account", 60, time.Minute, 20))))
	u := answered(b.ask(bucket.Ask{}).Grants[0], 3, 41*second)
	u.Left[0].Least = Start + 39*second
	b.clock.now += 40 * second // the figure may be of the vendor's former period
	b.settle(u)
	if n := len(b.ask(bucket.Ask{Want: 20}).Grants); n != 20 {
		b.Errorf("%d slots of a bucket that is full, want 20", n)
	}
}

// settling returns limits of 600 units. Answers say what is left of them and what calls took.
func settling() []bucket.Limit {
	limits := []bucket.Limit{
		sharedRate("account", 600, time.Minute, 100),
		quota("account", bucket.Quota{Count: 600, Window: bucket.Fixed, Per: time.Hour}),
		quota("account", bucket.Quota{Count: 600, Window: bucket.Sliding, Per: time.Hour}),
		quota("account", bucket.Quota{Count: 600, Window: bucket.Calendar, Unit: bucket.Hour, Zone: time.UTC}),
	}
	for i := range limits {
		limits[i] = reading(limits[i])
		limits[i].Cost = limits[i].Cost.SettledBy(ingest.Source{Header: "X-Cost"})
	}
	return limits
}

func leftRefunded(b *table) {
	for _, l := range settling() {
		b.lay(only(l))
		before := b.ask(bucket.Ask{Costs: []int64{50}}).Grants[0]
		c := answered(b.ask(bucket.Ask{Costs: []int64{1}}).Grants[0], 549, 60*second)
		c.Costs = []int64{1}
		b.settle(used(before, 50, 5))
		b.settle(c) // the vendor counted this call while it still counted all 50
		b.seconds(b.ask(bucket.Ask{Costs: []int64{94}}), 0)
		if w := b.ask(bucket.Ask{Costs: []int64{100}, Want: 6}).Wait; w.Excess != 0 {
			b.Errorf("%+v: %+v", l, w)
		}
	}
}

func leftOverdrawn(b *table) {
	for _, l := range settling() {
		b.lay(only(l))
		before := b.ask(bucket.Ask{Costs: []int64{1}}).Grants[0]
		c := answered(b.ask(bucket.Ask{Costs: []int64{1}}).Grants[0], 530, 60*second)
		c.Costs, c.Actual = []int64{1}, []int64{30}
		b.settle(used(before, 1, 40))
		b.settle(c)
		if w := b.ask(bucket.Ask{Costs: []int64{100}, Want: 6}).Wait; w.Excess != 0 {
			b.Errorf("%+v: %+v", l, w)
		}
	}
}

func leftOfYesterday(b *table) {
	b.lay(only(reading(quota("q", bucket.Quota{Count: 10, Window: bucket.Fixed, Per: time.Minute}))))
	g := b.ask(bucket.Ask{}).Grants[0]
	b.clock.now += 61 * second
	b.settle(answered(g, 0, 120*second))
	if n := len(b.ask(bucket.Ask{Want: 12}).Grants); n != 10 {
		b.Errorf("%d slots in a period of which no answer says anything, want 10", n)
	}
}

func leftCosts(b *table) {
	b.lay(only(reading(sharedRate("account", 600, time.Minute, 100))))
	g := b.ask(bucket.Ask{Costs: []int64{10}}).Grants[0]
	u := answered(g, 30, 30*second)
	u.Costs = []int64{10}
	b.settle(u)
	b.expectWait(b.ask(bucket.Ask{Costs: []int64{31}}), bucket.Wait{Limit: "account", Until: Start + 30*second, Excess: 310})
	b.seconds(b.ask(bucket.Ask{Costs: []int64{30}}), 0)
	b.expectWait(b.ask(bucket.Ask{Costs: []int64{1}}), bucket.Wait{Limit: "account", Until: Start + 30*second, Excess: 310})
}
