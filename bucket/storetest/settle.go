package storetest

import (
	"slices"
	"time"

	"weir/bucket"
	"weir/ingest"
)

var settleTests = []test{
	{"a returned slot is given back to its last only", returned},
	{"slots of several asks are given back newest first", returnedNewestFirst},
	{"returning twice gives back once", returnedTwice},
	{"a slow key and a slow limit get a slot back although others went on", returnedAmongOthers},
	{"a returned unit of a quota", returnedQuota},
	{"permits", permits},
	{"a permit that is held", heldPermit},
	{"an overage is charged", overage},
	{"a refund after the bucket drained cancels no overage", overageStays},
	{"many overages keep no refund of a call before them", refundBehindOverages},
	{"a refund is given back", refund},
	{"a refund after the bucket drained mints nothing", lateRefund},
	{"refunds while others wait", refundsInTurn},
	{"refunds of many running calls of a sliding quota", refundsOfMany},
	{"a call that outlives its sliding window gives nothing back", refundAfterWindow},
	{"an overage of a day that is over counts today", overageOfYesterday},
}

func returned(b *table) {
	b.lay(bucket.Rules{Key: keyRate(1, time.Second, 1)})
	all := b.ask(bucket.Ask{Want: 4, Horizon: far}).Grants
	b.settle(bucket.Use{Key: "k", Grant: all[0], Returned: true}) // later grants rely on it: forfeited
	b.settle(bucket.Use{Key: "k", Grant: all[3], Returned: true}, bucket.Use{Key: "k", Grant: all[2], Returned: true})
	b.expectSlots(b.ask(bucket.Ask{Want: 2, Horizon: far}), 2_000_000, 3_000_000)
}

func returnedNewestFirst(b *table) {
	b.lay(bucket.Rules{Key: keyRate(10, time.Hour, 10)})
	uses := make([]bucket.Use, 0, 10)
	for range 10 {
		uses = append(uses, bucket.Use{Key: "k", Grant: b.ask(bucket.Ask{}).Grants[0], Returned: true})
	}
	slices.Reverse(uses)
	b.settle(uses[:7]...)
	b.settle(uses[:7]...) // as a retried round trip does
	if n := len(b.ask(bucket.Ask{Want: 10}).Grants); n != 7 {
		b.Errorf("%d of the burst are left, want 7", n)
	}
	b.settle(uses[:7]...)
	b.expectSlots(b.ask(bucket.Ask{}))
}

func returnedTwice(b *table) {
	b.lay(bucket.Rules{Key: keyRate(1, 24*time.Hour, 1)})
	use := bucket.Use{Key: "k", Grant: b.ask(bucket.Ask{}).Grants[0], Returned: true}
	b.settle(use, use)
	b.expectSlots(b.ask(bucket.Ask{}), 0) // a missed slot of a day does not cost a day
	b.settle(use)                         // as a retried round trip does
	b.expectSlots(b.ask(bucket.Ask{}))
}

func returnedAmongOthers(b *table) {
	b.lay(bucket.Rules{Key: keyRate(1, 24*time.Hour, 1), Shared: []bucket.Limit{sharedRate("account", 10, time.Hour, 10)}})
	use := bucket.Use{Key: "k", Grant: b.ask(bucket.Ask{}).Grants[0], Returned: true}
	b.ask(bucket.Ask{Key: "other"})
	b.settle(use)
	b.expectSlots(b.ask(bucket.Ask{}), 0)
	n := 0
	for i := range 20 {
		n += len(b.ask(bucket.Ask{Key: string(rune('A' + i))}).Grants)
	}
	if n != 8 { // two of the account's burst of ten are called
		b.Errorf("%d more left, want 8", n)
	}
}

func returnedQuota(b *table) {
	for _, w := range []bucket.Window{bucket.Fixed, bucket.Sliding} {
		b.lay(only(quota("q", bucket.Quota{Count: 3, Window: w, Per: time.Hour})))
		got := b.ask(bucket.Ask{Want: 5})
		use := bucket.Use{Key: "k", Grant: got.Grants[0], Returned: true}
		b.settle(use, use)
		b.settle(use)
		b.expectSlots(b.ask(bucket.Ask{Want: 5}), 0)
	}
}

func permits(b *table) {
	r := only(bucket.Limit{Name: "concurrent", InFlight: 2})
	r.Lease = time.Minute
	b.lay(r)
	got := b.ask(bucket.Ask{Want: 3})
	b.expectSlots(got, 0, 0)
	if got.Wait.Limit != "concurrent" || got.Wait.Until <= b.clock.now {
		b.Errorf("%+v", got.Wait)
	}
	use := bucket.Use{Key: "k", Grant: got.Grants[0]}
	b.settle(use, use)
	b.expectSlots(b.ask(bucket.Ask{Want: 3}), 0)
	b.clock.now += 59_999_999
	b.expectSlots(b.ask(bucket.Ask{Want: 3}))
	b.clock.now++
	b.expectSlots(b.ask(bucket.Ask{Want: 3}), 60_000_000, 60_000_000)
	b.settle(bucket.Use{Key: "k", Grant: got.Grants[1]}) // its lease has run out: no other call's permit becomes free
	b.expectSlots(b.ask(bucket.Ask{}))
}

// heldPermit checks that a held permit counts until its holder ends it or its time is over. That must also hold if the
// store learns of it when no permit is free, as after a restart. Holding a permit twice must hold only one.
func heldPermit(b *table) {
	r := only(bucket.Limit{Name: "concurrent", InFlight: 2})
	r.Lease = time.Minute
	b.lay(r)
	hold := func(serial int64, d time.Duration) {
		b.settle(bucket.Use{Key: "k", Grant: bucket.Grant{Serial: serial}, Hold: d})
	}
	call := b.ask(bucket.Ask{}).Grants[0]
	hold(-7, time.Hour)
	b.settle(bucket.Use{Key: "k", Grant: call})
	hold(-7, time.Hour)
	b.expectSlots(b.ask(bucket.Ask{Want: 3}), 0)
	b.clock.now += 61_000_000 // that call's lease is over, and the operation goes on
	hold(-9, time.Minute)
	b.expectSlots(b.ask(bucket.Ask{}))
	hold(-11, time.Minute)
	b.settle(bucket.Use{Key: "k", Grant: bucket.Grant{Serial: -7}}, bucket.Use{Key: "k", Grant: bucket.Grant{Serial: -7}})
	b.expectSlots(b.ask(bucket.Ask{}))
	b.clock.now += 60_000_000
	b.expectSlots(b.ask(bucket.Ask{Want: 3}), 121_000_000, 121_000_000)
}

// tokens returns rules with a rate that settles; its interval is 10 s / 1000.
func tokens() bucket.Rules {
	l := sharedRate("tokens", 1099, 10*time.Second, 100)
	l.Cost = l.Cost.SettledBy(ingest.Source{Header: "X-Tokens"})
	return only(l)
}

func used(g bucket.Grant, cost, actual int64) bucket.Use {
	return bucket.Use{Key: "k", Grant: g, Costs: []int64{cost}, Actual: []int64{actual}}
}

func overage(b *table) {
	b.lay(tokens())
	b.settle(used(b.ask(bucket.Ask{Costs: []int64{100}}).Grants[0], 100, 300))
	b.expectSlots(b.ask(bucket.Ask{Costs: []int64{100}, Horizon: far}), 3_000_001)
}

// overageStays checks that units that had drained before an overage became known do not pay for the overage. If the
// overage is settled while the units of both calls still count, all of these can be given back.
func overageStays(b *table) {
	for _, c := range []struct{ settled, next int64 }{{5_000_000, 6_000_001}, {500_000, 1_500_001}} {
		for _, returned := range []bool{false, true} {
			b.lay(tokens())
			one := b.ask(bucket.Ask{Costs: []int64{50}}).Grants[0]
			two := b.ask(bucket.Ask{Costs: []int64{50}}).Grants[0]
			b.clock.now += bucket.Micros(c.settled)
			b.settle(used(two, 50, 150))
			use := used(one, 50, 0)
			use.Returned = returned
			b.settle(use)
			b.expectSlots(b.ask(bucket.Ask{Costs: []int64{100}, Horizon: far}), c.next)
		}
	}
	// The last grant is no exception, nor is a second overage.
	b.lay(tokens())
	one := b.ask(bucket.Ask{Costs: []int64{50}}).Grants[0]
	two := b.ask(bucket.Ask{Costs: []int64{50}}).Grants[0]
	b.clock.now += 5_000_000
	b.settle(used(one, 50, 100))
	b.settle(used(two, 50, 0))
	b.expectSlots(b.ask(bucket.Ask{Costs: []int64{100}, Horizon: far}), 5_500_001)
}

// refundBehindOverages checks that many overages that come at once limit a refund no more than the first of them does.
func refundBehindOverages(b *table) {
	b.lay(tokens())
	small := b.ask(bucket.Ask{Want: 20, Costs: []int64{1}}).Grants
	big := b.ask(bucket.Ask{Costs: []int64{50}}).Grants[0]
	for _, g := range small {
		b.settle(used(g, 1, 2))
	}
	b.settle(used(big, 50, 0))
	b.expectSlots(b.ask(bucket.Ask{Costs: []int64{100}, Horizon: far}), 400_020) // 40 units, and 1 µs for each overage
}

func refund(b *table) {
	b.lay(tokens())
	g := b.ask(bucket.Ask{Costs: []int64{100}}).Grants[0]
	b.settle(used(g, 100, 10))
	b.settle(used(g, 100, 10))
	b.expectSlots(b.ask(bucket.Ask{Costs: []int64{90}}), 0)
	b.expectSlots(b.ask(bucket.Ask{Costs: []int64{1}, Horizon: far}), 10_000)
}

// lateRefund checks that a late refund gives nothing back, because the estimate's units have drained meanwhile. Giving
// them back once more would let a burst leave twice.
func lateRefund(b *table) {
	b.lay(tokens())
	g := b.ask(bucket.Ask{Costs: []int64{100}}).Grants[0]
	b.clock.now += 1_000_000
	b.expectSlots(b.ask(bucket.Ask{Costs: []int64{100}}), 1_000_000)
	b.settle(used(g, 100, 0))
	b.expectSlots(b.ask(bucket.Ask{Costs: []int64{100}, Horizon: far}), 2_000_000)
	// Half of the estimate had drained: half can be given back.
	b.lay(tokens())
	g = b.ask(bucket.Ask{Costs: []int64{80}}).Grants[0]
	b.clock.now += 400_000
	b.expectSlots(b.ask(bucket.Ask{Costs: []int64{60}}), 400_000)
	b.settle(used(g, 80, 0))
	b.expectSlots(b.ask(bucket.Ask{Costs: []int64{40}}), 400_000)
	b.expectSlots(b.ask(bucket.Ask{Costs: []int64{1}, Horizon: far}), 410_000)
}

// refundsInTurn checks that estimates ten times too high lower the throughput only while their calls run.
func refundsInTurn(b *table) {
	b.lay(tokens())
	left, start := int64(0), b.clock.now
	for range 2000 {
		got := b.ask(bucket.Ask{Costs: []int64{50}})
		for _, g := range got.Grants {
			left += 5
			b.settle(used(g, 50, 5))
		}
		b.clock.now += 5000
	}
	capacity := int64(b.clock.now-start)/10_000 + 100
	if left > capacity || left < capacity*95/100 {
		b.Errorf("%d units used of %d", left, capacity)
	}
}

func overageOfYesterday(b *table) {
	b.lay(only(quota("daily", bucket.Quota{Count: 10, Window: bucket.Calendar, Unit: bucket.Day, Zone: time.UTC})))
	g := b.ask(bucket.Ask{}).Grants[0]
	b.clock.now += 86_400_000_000
	b.settle(used(g, 1, 7))
	if n := len(b.ask(bucket.Ask{Want: 64}).Grants); n != 4 {
		b.Errorf("%d of 10 left after an overage of 6, want 4", n)
	}
}

// refundsOfMany checks that each of many running calls gets back what it did not take, in whatever order they end.
func refundsOfMany(b *table) {
	const calls = 300
	r := only(quota("tokens", bucket.Quota{Count: 1000 * calls, Window: bucket.Sliding, Per: time.Hour}))
	r.Lease = time.Hour
	b.lay(r)
	var grants []bucket.Grant
	for range calls {
		grants = append(grants, b.ask(bucket.Ask{Costs: []int64{1000}}).Grants...)
		b.clock.now += 5_000_000
	}
	for i := range calls {
		b.settle(used(grants[(i*7)%calls], 1000, 100))
	}
	if n := len(b.ask(bucket.Ask{Costs: []int64{900 * calls}}).Grants); n != 1 {
		b.Errorf("%d calls took a tenth of what they had reserved, and the rest did not come back", calls)
	}
}

// refundAfterWindow checks a refund of a call whose units no longer count: it must not take units off a later call.
func refundAfterWindow(b *table) {
	window := func(per time.Duration) bucket.Rules {
		r := only(quota("tokens", bucket.Quota{Count: 10, Window: bucket.Sliding, Per: per}))
		r.Lease = time.Hour
		return r
	}
	for _, per := range []time.Duration{time.Minute, 10 * time.Minute} { // as before, and a longer window from then on
		b.lay(window(time.Minute))
		g := b.ask(bucket.Ask{Costs: []int64{5}}).Grants[0]
		b.clock.now += 61_000_000
		later := b.ask(bucket.Ask{Costs: []int64{10}}).Grants
		b.apply(window(per))
		b.settle(used(g, 5, 0))
		if n := len(b.ask(bucket.Ask{Want: 5}).Grants); n != 0 || len(later) != 1 {
			b.Errorf("%d units beyond the ten of a window of %s", n, per)
		}
		b.settle(used(later[0], 10, 4)) // this call's units still count
		if n := len(b.ask(bucket.Ask{Want: 10}).Grants); n != 6 {
			b.Errorf("%d of 6 units came back to a window of %s", n, per)
		}
	}
}
