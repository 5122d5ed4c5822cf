package storetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"weir/bucket"
)

var rateTests = []test{
	{"vectors", rateVectors},
	{"a token bucket", tokenBucket},
	{"fractions do not drift", noDrift},
	{"weighted calls are charged from the first", weighted},
	{"charged at the common slot, not at now", commonSlot},
	{"the horizon, and the limit that binds", horizon},
	{"a cost above the burst never passes and charges nothing", never},
	{"a clock that goes back mints nothing", clockBack},
	{"idling earns one burst only", idling},
	{"slow rates stay in debt", slowRate},
	{"a floor reminds the store", floor},
	{"malformed asks grant nothing", malformed},
	{"several asks see each other", batch},
	{"several callers at once", together},
}

const far = 1000 * time.Hour

func rateVectors(b *table) {
	ten := func(burst int64) bucket.Rules { return bucket.Rules{Key: keyRate(100, 10*time.Second, burst)} }
	b.lay(ten(1))
	b.expectSlots(b.ask(bucket.Ask{Want: 5, Horizon: far}), 0, 100_000, 200_000, 300_000, 400_000)
	b.lay(bucket.Rules{Key: keyRate(3, time.Second, 4)}) // a burst above the count keeps the mean
	b.expectSlots(b.ask(bucket.Ask{Want: 6, Horizon: far}), 0, 0, 0, 0, 333_334, 666_668)
	b.lay(ten(3)) // 10 s / 98
	b.expectSlots(b.ask(bucket.Ask{Want: 5, Horizon: far}), 0, 0, 0, 102_041, 204_082)
	b.clock.now = Start + 5_000_000
	b.expectSlots(b.ask(bucket.Ask{Want: 5, Horizon: far}), 5_000_000, 5_000_000, 5_000_000, 5_102_041, 5_204_082)
	b.lay(bucket.Rules{Key: keyRate(100, time.Second, 10), Jitter: 50 * time.Millisecond})
	got := b.ask(bucket.Ask{Want: 12, Horizon: far})
	b.expectSlots(got, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11_539, 23_078)
	if tat := got.Grants[11].TAT; tat != Start+12*11_539 {
		b.Errorf("TAT %d, want %d", tat-Start, 12*11_539)
	}
}

// tokenBucket checks a burst that comes in addition to the rate. The part of the bucket that jitter needs stays unused,
// except by a single call that costs more than the rest. Such a call waits from the time when the bucket was empty,
// however often it asks.
func tokenBucket(b *table) {
	tokens := func(count, burst int64) bucket.Rate {
		return bucket.Rate{Count: count, Per: time.Second, Burst: burst, Counts: bucket.ByTokens}
	}
	b.lay(bucket.Rules{Key: bucket.KeyLimits{Rate: tokens(10, 8)}})
	b.expectSlots(b.ask(bucket.Ask{Want: 10, Horizon: far}), 0, 0, 0, 0, 0, 0, 0, 0, 100_000, 200_000)
	r := tokens(100, 20)
	// During the jitter 4.5 tokens come in.
	b.lay(bucket.Rules{Key: fast, Jitter: 45 * time.Millisecond, Shared: []bucket.Limit{{Name: "tokens", Rate: &r}}})
	b.expectSlots(b.ask(bucket.Ask{Costs: []int64{20}}), 0)
	b.expectSlots(b.ask(bucket.Ask{Costs: []int64{1}, Horizon: far}), 60_000)
	b.clock.now = Start + 210_000 // the bucket was empty at that time
	got := b.ask(bucket.Ask{Costs: []int64{20}})
	b.expectSlots(got)
	b.expectWait(got, bucket.Wait{Limit: "tokens", Until: Start + 260_000})
	b.clock.now = Start + 259_999
	b.expectSlots(b.ask(bucket.Ask{Costs: []int64{20}}))
	b.clock.now = Start + 260_000
	b.expectSlots(b.ask(bucket.Ask{Costs: []int64{20}}), 260_000)
	b.expectWait(b.ask(bucket.Ask{Costs: []int64{21}}), bucket.Wait{Limit: "tokens", Never: true})
}

// noDrift checks that an interval of 10/9.09… µs loses no fraction over many slots.
func noDrift(b *table) {
	b.lay(bucket.Rules{Key: keyRate(70_000, time.Second, 1)}) // 1,000,001/70,000 µs
	var last bucket.Micros
	for range 500 {
		got := b.ask(bucket.Ask{Want: 64, Horizon: far})
		last = got.Grants[63].At
	}
	// The n-th slot is the first whole microsecond at or after (n-1)*T.
	n, p, q := int64(500*64-1), int64(1_000_001), int64(70_000)
	if want := (n*p + q - 1) / q; int64(last-Start) != want {
		b.Errorf("slot 32,000 at %d µs, want %d", last-Start, want)
	}
}

func weighted(b *table) {
	b.lay(only(sharedRate("tokens", 1019, 10*time.Second, 20))) // 10 s / 1000
	b.expectSlots(b.ask(bucket.Ask{Costs: []int64{5}}), 0)
	b.expectSlots(b.ask(bucket.Ask{Costs: []int64{20}, Horizon: far}), 50_000)
	b.expectSlots(b.ask(bucket.Ask{Costs: []int64{1}, Horizon: far}), 60_000)
	b.lay(only(sharedRate("tokens", 1019, 10*time.Second, 20)))
	b.expectSlots(b.ask(bucket.Ask{Costs: []int64{20}}), 0) // the whole burst: equal is enough
	b.expectSlots(b.ask(bucket.Ask{Costs: []int64{20}, Horizon: far}), 200_000)
}

// commonSlot checks that a limit is charged from the slot. If it were charged from now, it would drain until a later
// slot, and a second burst would leave.
func commonSlot(b *table) {
	b.lay(bucket.Rules{Key: keyRate(1, time.Second, 1), Shared: []bucket.Limit{sharedRate("account", 2, time.Second, 2)}})
	b.ask(bucket.Ask{Key: "a"})
	b.expectSlots(b.ask(bucket.Ask{Key: "a", Horizon: far}), 1_000_000)
	b.clock.now += 1_000_000
	together := 0
	for i := range 3 {
		together += len(b.ask(bucket.Ask{Key: fmt.Sprint("other", i)}).Grants)
	}
	if together != 1 {
		b.Errorf("%d calls left together with the one reserved before, want 1 (burst 2)", together)
	}
}

func horizon(b *table) {
	b.lay(bucket.Rules{Key: keyRate(10, time.Second, 1), Shared: []bucket.Limit{sharedRate("account", 1, time.Second, 1)}})
	got := b.ask(bucket.Ask{Want: 3, Horizon: 1500 * time.Millisecond})
	b.expectSlots(got, 0, 1_000_000)
	b.expectWait(got, bucket.Wait{Limit: "account", Until: Start + 500_000})
	b.clock.now = got.Wait.Until
	b.expectSlots(b.ask(bucket.Ask{Horizon: 1500 * time.Millisecond}), 2_000_000)
	b.lay(bucket.Rules{Key: keyRate(1, time.Second, 1)})
	b.ask(bucket.Ask{})
	b.expectWait(b.ask(bucket.Ask{}), bucket.Wait{Limit: "rate", Until: Start + 1_000_000})
}

// never checks that a call that one limit refuses does not count in the limits that did not refuse it.
func never(b *table) {
	b.lay(only(sharedRate("tokens", 100, time.Second, 20), sharedRate("after", 1, time.Second, 1)))
	got := b.ask(bucket.Ask{Costs: []int64{21, 1}})
	b.expectSlots(got)
	b.expectWait(got, bucket.Wait{Limit: "tokens", Never: true})
	b.expectSlots(b.ask(bucket.Ask{Costs: []int64{20, 1}}), 0)
}

func clockBack(b *table) {
	b.lay(bucket.Rules{Key: keyRate(10, time.Second, 1), Shared: []bucket.Limit{sharedRate("account", 1000, time.Second, 1)}})
	b.ask(bucket.Ask{})
	b.clock.now = Start - 3_600_000_000
	if got := b.ask(bucket.Ask{}); got.Now != Start {
		b.Errorf("the store's time went back by %d µs", Start-got.Now)
	}
	for range 50 {
		b.expectSlots(b.ask(bucket.Ask{}))
	}
	b.expectSlots(b.ask(bucket.Ask{Key: "other", Horizon: time.Second}), 1000)
	b.clock.now = Start + 100_000
	b.expectSlots(b.ask(bucket.Ask{}), 100_000)
}

func idling(b *table) {
	b.lay(bucket.Rules{Key: keyRate(10, time.Second, 3)})
	for _, pause := range []bucket.Micros{0, 1_000_000, 1_000_000_000_000} {
		b.clock.now += pause
		if n := len(b.ask(bucket.Ask{Want: 10}).Grants); n != 3 {
			b.Errorf("after %d µs of idling %d left together, want 3", pause, n)
		}
	}
}

// slowRate checks that the state of a bucket does not expire before its debt. Otherwise a slow rate would begin again
// with a full burst.
func slowRate(b *table) {
	b.lay(bucket.Rules{Key: keyRate(1, 48*time.Hour, 1)})
	b.ask(bucket.Ask{})
	for range 47 {
		b.clock.now += 3_600_000_000
		b.expectSlots(b.ask(bucket.Ask{}))
	}
	b.clock.now += 3_600_000_000
	b.expectSlots(b.ask(bucket.Ask{}), 48*3_600_000_000)
}

func floor(b *table) {
	b.lay(bucket.Rules{Key: keyRate(1, time.Second, 1)})
	b.expectWait(b.ask(bucket.Ask{Floor: Start + 700_000}), bucket.Wait{Limit: "rate", Until: Start + 700_000})
	b.expectWait(b.ask(bucket.Ask{Floor: Start + 300_000}), bucket.Wait{Limit: "rate", Until: Start + 700_000})
}

func malformed(b *table) {
	b.lay(only(bucket.Limit{Name: "calls", InFlight: 1}))
	good := b.whole(bucket.Ask{Key: "good"})
	for name, a := range map[string]bucket.Ask{
		"no slot wanted":     {Key: "k", Limits: fast},
		"too many":           {Key: "k", Limits: fast, Want: bucket.MaxWant + 1},
		"horizon":            {Key: "k", Limits: fast, Want: 1, Horizon: -1},
		"costs of others":    {Key: "k", Limits: fast, Want: 1, Costs: []int64{1, 1}},
		"negative cost":      {Key: "k", Limits: fast, Want: 1, Costs: []int64{-1}},
		"rate of nothing":    {Key: "k", Want: 1},
		"rate of a fraction": {Key: "k", Want: 1, Limits: keyRate(0, time.Second, 1)},
	} {
		if got, err := b.store.Reserve(context.Background(), []bucket.Ask{good, a}); err == nil {
			b.Errorf("%s: accepted: %+v", name, got)
		}
	}
	b.expectSlots(b.ask(bucket.Ask{}), 0)
}

func batch(b *table) {
	b.lay(bucket.Rules{Key: keyRate(10, time.Second, 1), Shared: []bucket.Limit{sharedRate("account", 4, time.Second, 3)}})
	asks := []bucket.Ask{
		b.whole(bucket.Ask{Key: "a", Want: 2}), b.whole(bucket.Ask{Key: "b"}), b.whole(bucket.Ask{Key: "a"}),
		b.whole(bucket.Ask{Key: "c"}), b.whole(bucket.Ask{Key: "d"}),
	}
	got, err := b.store.Reserve(context.Background(), asks)
	if err != nil {
		b.Fatal(err)
	}
	for i, want := range []int{1, 1, 0, 1, 0} {
		if n := len(got[i].Grants); n != want {
			b.Errorf("ask %d: %d grants, want %d", i, n, want)
		}
	}
	b.expectWait(got[4], bucket.Wait{Limit: "account", Until: Start + 500_000})
	seen := map[int64]bool{}
	for _, a := range got {
		for _, g := range a.Grants {
			if seen[g.Serial] || g.Serial <= 0 {
				b.Errorf("serial %d is not unique", g.Serial)
			}
			seen[g.Serial] = true
		}
	}
}

// together takes slots far ahead from several goroutines, with returns between them. It checks that all slots together
// keep every limit.
func together(b *table) {
	b.lay(bucket.Rules{Key: keyRate(50, time.Second, 2), Shared: []bucket.Limit{
		sharedRate("account", 200, time.Second, 10),
		quota("sliding", bucket.Quota{Count: 150, Window: bucket.Sliding, Per: time.Second}),
	}})
	var mu sync.Mutex
	var all []bucket.Arrival
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 60 {
				key := fmt.Sprint("key", (i+n)%3)
				got, err := b.store.Reserve(context.Background(), []bucket.Ask{b.whole(bucket.Ask{Key: key, Want: 3, Horizon: far})})
				if err != nil {
					b.Error(err)
					return
				}
				mu.Lock()
				for _, g := range got[0].Grants[:2] {
					all = append(all, bucket.Arrival{At: int64(g.At) * 1000})
				}
				mu.Unlock()
				use := bucket.Use{Key: key, Grant: got[0].Grants[2], Returned: true}
				if err := b.store.Settle(context.Background(), []bucket.Use{use}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if len(all) != 4*60*2 {
		b.Errorf("%d grants", len(all))
	}
	for _, l := range b.rules.Shared {
		if v := bucket.Check(all, bucket.Expectation{Limit: l}); v.Outcome != bucket.Pass {
			b.Errorf("%s: %v", l.Name, v)
		}
	}
}
