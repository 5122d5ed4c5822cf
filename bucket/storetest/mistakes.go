package storetest

import (
	"fmt"
	"time"

	"weir/bucket"
)

// mistakeTests are mistakes of other limiters, by project and issue. Each of these limiters would have failed its test.
var mistakeTests = []test{
	{"redis_rate since 2025-07-04: a burst is whole in every year", burstInEveryYear},
	{"redis_rate, Losant 3: no second call after half an interval", wholeInterval},
	{"redis_rate 24 and 75, redis-cell 38: 17 in 30 s are never 32", seventeen},
	{"redis-gcra 6: a cost above the burst charges nothing", never},
	{"throttled: a weighted first call is charged whole", weighted},
	{"Guava: a large first call is not free", weighted},
	{"gubernator 77: asking in vain does not slow the leak", askingInVain},
	{"gubernator 87: no more is left than the limit", idling},
	{"gubernator 118: a period's edge fills no bucket", noEdge},
	{"gubernator, Envoy: a month is not 30 days", month},
	{"Envoy: a week begins on Monday, not on Thursday", week},
	{"Envoy 1060 and 190: what one limit refuses the others do not count", allOrNothing},
	{"Envoy 262: two limits in one, 500 an hour and 10 a minute", hourAndMinute},
	{"uber 106, 119, 120 and 122: idling does not switch the limit off", idling},
	{"uber 121: a late call earns no slack", noSlack},
	{"x/time/rate 34861 and 46579: a call in its slot passes", wholeInterval},
	{"x/time/rate 56263 and 56287, nginx: a clock that goes back mints nothing", clockBack},
	{"x/time/rate 65508, Sentinel 604 and 3091: many callers are not twice one", together},
	{"x/time/rate 56924 and 69419: only the last slot can be given back", returned},
	{"x/time/rate 47221: a rate of nothing is not unlimited", malformed},
	{"cadence 3145 and 7590: a slot that no job needed costs nothing", returnedTwice},
	{"Sentinel 399 and 259: more than a thousand a second are limited", fastRates},
	{"Sentinel: 0.2 a second are not a division by zero", fifthOfACall},
	{"Kong 5311: a refused call does not count", refusedDoNotCount},
	{"APISIX 12605, Symfony 63996: a slow rate's debt is not forgotten", slowRate},
	{"resilience4j 1356: not twice as much inside one period", edgeBurst},
	{"boulder 8785: a raised rate helps who waits", keyRateRaised},
	{"tower-resilience 363: having waited is not having a slot", waitedInVain},
	{"limitador 506: estimates are settled", refundsInTurn},
	{"Redis 15093: a wait is never of nothing", waitsAreReal},
	{"Redis 13113, prorate 40: large numbers stay whole", largeNumbers},
	{"a limit switched on while calls run lets four a minute", switchedOn},
	{"a refill of five every minute is not one every 12 s", refill},
	{"ten a minute counted from the first call, not from the clock", fromTheFirst},
}

// exactRates are rates at which limiters with floating-point seconds lose one call of a burst.
var exactRates = []bucket.Rate{
	{Count: 10, Per: time.Second},
	{Count: 20, Per: time.Second},
	{Count: 25, Per: time.Second},
	{Count: 30, Per: time.Second},
	{Count: 90, Per: time.Second},
	{Count: 250, Per: time.Second},
	{Count: 100, Per: time.Minute},
	{Count: 200, Per: time.Minute},
	{Count: 500, Per: time.Minute},
	{Count: 600, Per: time.Minute},
	{Count: 1000, Per: time.Minute},
	{Count: 5000, Per: time.Minute},
	{Count: 7, Per: time.Second},
	{Count: 1, Per: 3 * time.Hour},
}

func burstInEveryYear(b *table) {
	b.lay(bucket.Rules{Key: keyRate(1, time.Second, 1)})
	for year := 2025; year <= 2050; year += 5 {
		b.clock.now = bucket.MicrosOf(time.Date(year, 7, 4, 21, 24, 16, 654321000, time.UTC))
		for i, r := range exactRates {
			for _, burst := range []int64{1, 5, 10} {
				r.Burst = burst
				got := b.ask(bucket.Ask{Key: fmt.Sprint(year, i, burst), Limits: bucket.KeyLimits{Rate: r}, Want: int(burst) + 1})
				if n := int64(len(got.Grants)); n != burst {
					b.Errorf("%d: %d of a burst of %d granted at %+v", year, n, burst, r)
				}
			}
		}
	}
}

// wholeInterval checks that a call does not pass 1 µs before its slot, and passes in its slot.
func wholeInterval(b *table) {
	b.lay(bucket.Rules{Key: keyRate(1, time.Second, 1)})
	for i, r := range exactRates {
		r.Burst = 1
		a := bucket.Ask{Key: fmt.Sprint(i), Limits: bucket.KeyLimits{Rate: r}}
		b.ask(a)
		first := b.clock.now
		slot := b.ask(a).Wait.Until
		if wait := int64(slot - first); wait < r.Per.Microseconds()/r.Count || wait > r.Per.Microseconds()/r.Count+1 {
			b.Errorf("%+v: the second call comes %d µs after the first", r, wait)
		}
		b.clock.now = slot - 1
		if n := len(b.ask(a).Grants); n != 0 {
			b.Errorf("%+v: a call passed before its slot", r)
		}
		b.clock.now = slot
		if n := len(b.ask(a).Grants); n != 1 {
			b.Errorf("%+v: a call did not pass in its slot", r)
		}
	}
}

// greedy takes all slots that it can get for the time length, in steps, and returns their times.
func (b *table) greedy(a bucket.Ask, length, step time.Duration) (arrivals []bucket.Arrival) {
	b.Helper()
	for end := b.clock.now.Add(length); b.clock.now < end; b.clock.now = b.clock.now.Add(step) {
		a.Want = bucket.MaxWant
		for _, g := range b.ask(a).Grants {
			arrivals = append(arrivals, bucket.Arrival{At: int64(g.At) * 1000})
		}
	}
	return arrivals
}

// expectWorst checks that want is the most calls in any window of that length.
func (b *table) expectWorst(arrivals []bucket.Arrival, window time.Duration, want int64) {
	b.Helper()
	v := bucket.Check(arrivals, bucket.Expectation{Limit: quota("", bucket.Quota{Count: want, Window: bucket.Sliding, Per: window})})
	if v.Worst != want {
		b.Errorf("%d calls in the worst %s, want %d", v.Worst, window, want)
	}
}

func seventeen(b *table) {
	for _, burst := range []int64{1, 2, 9, 17} {
		b.lay(bucket.Rules{Key: keyRate(17, 30*time.Second, burst)})
		b.expectWorst(b.greedy(bucket.Ask{}, 3*time.Minute, 100*time.Millisecond), 30*time.Second, 17)
	}
}

func askingInVain(b *table) {
	b.lay(only(sharedRate("account", 1, time.Second, 1)))
	n := 0
	for range 1000 { // ten seconds, a question every ten milliseconds
		n += len(b.ask(bucket.Ask{}).Grants)
		b.clock.now += 10_000
	}
	if n != 10 {
		b.Errorf("%d calls in ten seconds of one a second, want 10", n)
	}
}

func noEdge(b *table) {
	b.lay(bucket.Rules{Key: keyRate(60, time.Minute, 10)})
	b.clock.now = Start - Start%60_000_000 + 50_000_000
	b.expectWorst(b.greedy(bucket.Ask{}, 2*time.Minute, 50*time.Millisecond), time.Minute, 60)
}

func month(b *table) {
	b.lay(only(quota("monthly", bucket.Quota{Count: 2, Window: bucket.Calendar, Unit: bucket.Month, Zone: time.UTC})))
	b.clock.now = bucket.MicrosOf(time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC))
	got := b.ask(bucket.Ask{Want: 5})
	b.expectWait(got, bucket.Wait{Limit: "monthly", Until: bucket.MicrosOf(time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC))})
	b.clock.now = got.Wait.Until
	got = b.ask(bucket.Ask{Want: 5})
	if len(got.Grants) != 2 {
		b.Errorf("%d in March, want 2", len(got.Grants))
	}
	b.expectWait(got, bucket.Wait{Limit: "monthly", Until: bucket.MicrosOf(time.Date(2027, 4, 1, 0, 0, 0, 0, time.UTC))})
}

func week(b *table) {
	b.lay(only(quota("rewards", bucket.Quota{Count: 5, Window: bucket.Calendar, Unit: bucket.Week, Zone: time.UTC})))
	got := b.ask(bucket.Ask{Want: 9}) // a Friday
	if len(got.Grants) != 5 {
		b.Errorf("%d of five a week", len(got.Grants))
	}
	b.expectWait(got, bucket.Wait{Limit: "rewards", Until: bucket.MicrosOf(time.Date(2027, 1, 18, 0, 0, 0, 0, time.UTC))})
}

func hourAndMinute(b *table) {
	b.lay(only(quota("hour", bucket.Quota{Count: 500, Window: bucket.Sliding, Per: time.Hour}),
		quota("minute", bucket.Quota{Count: 10, Window: bucket.Sliding, Per: time.Minute})))
	calls := b.greedy(bucket.Ask{}, 3*time.Hour, 10*time.Second)
	b.expectWorst(calls, time.Hour, 500)
	b.expectWorst(calls, time.Minute, 10)
	if n := len(calls); n < 1490 || n > 1500 {
		b.Errorf("%d calls in three hours of 500, want all of them", n)
	}
}

func noSlack(b *table) {
	b.lay(bucket.Rules{Key: keyRate(10, time.Second, 1)})
	b.ask(bucket.Ask{})
	b.clock.now += 350_000
	b.expectSlots(b.ask(bucket.Ask{}), 350_000)
	b.expectWait(b.ask(bucket.Ask{}), bucket.Wait{Limit: "rate", Until: Start + 450_000})
}

func fastRates(b *table) {
	for _, count := range []int64{2000, 300_000, 700_000, 1_000_000} {
		b.lay(bucket.Rules{Key: keyRate(count, time.Second, 1)})
		var last bucket.Micros
		const slots = 200 * bucket.MaxWant
		for range 200 {
			g := b.ask(bucket.Ask{Want: bucket.MaxWant, Horizon: far}).Grants
			last = g[len(g)-1].At
		}
		if rate := float64(slots-1) / float64(last-Start) * 1e6; rate > float64(count) || rate < 0.995*float64(count) {
			b.Errorf("%d/s: %.0f/s were let pass", count, rate)
		}
	}
}

func fifthOfACall(b *table) {
	b.lay(bucket.Rules{Key: keyRate(1, 5*time.Second, 1)})
	b.expectSlots(b.ask(bucket.Ask{Want: 3, Horizon: far}), 0, 5_000_000, 10_000_000)
}

// waitedInVain checks a caller that comes at the time it was told, after another caller took the slot: it must be told
// another time.
func waitedInVain(b *table) {
	b.lay(only(sharedRate("account", 1, time.Second, 1)))
	b.ask(bucket.Ask{Key: "a"})
	told := b.ask(bucket.Ask{Key: "b"}).Wait.Until
	if other := b.ask(bucket.Ask{Key: "c"}).Wait.Until; other != told {
		b.Errorf("two that wait are told %d and %d", told-Start, other-Start)
	}
	b.clock.now = told
	b.expectSlots(b.ask(bucket.Ask{Key: "c"}), 1_000_000)
	again := b.ask(bucket.Ask{Key: "b"})
	b.expectSlots(again)
	b.expectWait(again, bucket.Wait{Limit: "account", Until: Start + 2_000_000})
}

// waitsAreReal checks that no caller is told to ask again at once, and that a caller that asks at the time it was told
// gets a slot.
func waitsAreReal(b *table) {
	for _, r := range []bucket.Rate{{Count: 3, Per: time.Second}, {Count: 900_000, Per: time.Second}, {Count: 7, Per: time.Minute}} {
		r.Burst = 1
		b.lay(bucket.Rules{Key: bucket.KeyLimits{Rate: r}})
		for range 200 {
			b.ask(bucket.Ask{})
			got := b.ask(bucket.Ask{})
			if len(got.Grants) == 0 && got.Wait.Until <= b.clock.now {
				b.Fatalf("%+v: told at %d to wait until %d", r, b.clock.now-Start, got.Wait.Until-Start)
			}
			b.clock.now = max(b.clock.now, got.Wait.Until)
		}
	}
}

func largeNumbers(b *table) {
	const count = 1<<52 - 1
	b.lay(only(quota("money", bucket.Quota{Count: count, Window: bucket.Fixed, Per: 24 * time.Hour})))
	left := int64(count)
	for _, cost := range []int64{200_000_000, 1 << 51, 100_000_000_000_007, 3} {
		b.expectSlots(b.ask(bucket.Ask{Costs: []int64{cost}}), 0)
		left -= cost
	}
	b.expectSlots(b.ask(bucket.Ask{Costs: []int64{left + 1}}))
	b.expectSlots(b.ask(bucket.Ask{Costs: []int64{left}}), 0)
}

func switchedOn(b *table) {
	b.lay(only())
	b.clock.now = bucket.MicrosOf(time.Date(2027, 1, 15, 12, 2, 0, 0, time.UTC))
	if n := len(b.ask(bucket.Ask{Want: 64}).Grants); n != 64 {
		b.Fatalf("%d of 64 without a limit", n)
	}
	b.apply(only(quota("four", bucket.Quota{Count: 4, Window: bucket.Sliding, Per: time.Minute})))
	calls := b.greedy(bucket.Ask{}, 10*time.Minute, time.Second)
	b.expectWorst(calls, time.Minute, 4)
	if n := len(calls); n != 40 {
		b.Errorf("%d in ten minutes of four, want 40", n)
	}
}

// refill checks that a quota that refills five at every full minute lets five go at once, and that a rate of five a
// minute never does.
func refill(b *table) {
	b.lay(only(quota("refill", bucket.Quota{Count: 5, Window: bucket.Fixed, Per: time.Minute})))
	b.expectSlots(b.ask(bucket.Ask{Want: 9}), 0, 0, 0, 0, 0)
	b.clock.now += 59_999_999
	b.expectSlots(b.ask(bucket.Ask{Want: 9}))
	b.clock.now++
	if n := len(b.ask(bucket.Ask{Want: 9}).Grants); n != 5 {
		b.Errorf("%d in the next minute, want 5", n)
	}
	b.lay(bucket.Rules{Key: keyRate(5, time.Minute, 1)})
	b.expectSlots(b.ask(bucket.Ask{Want: 3, Horizon: far}), 0, 12_000_000, 24_000_000)
}

// fromTheFirst asks for ten calls from 1:30 to 2:00 and ten from 2:00 to 2:30, which is twenty in a minute. A window
// aligned to the clock lets all of them pass, a sliding window only ten.
func fromTheFirst(b *table) {
	for _, c := range []struct {
		window bucket.Window
		want   int
	}{{bucket.Fixed, 20}, {bucket.Sliding, 10}} {
		b.lay(only(quota("ten", bucket.Quota{Count: 10, Window: c.window, Per: time.Minute})))
		n := 0
		for i := range bucket.Micros(20) {
			b.clock.now = Start + 90_000_000 + i*3_000_000
			n += len(b.ask(bucket.Ask{}).Grants)
		}
		if n != c.want {
			b.Errorf("%s: %d of 20 passed, want %d", c.window, n, c.want)
		}
	}
}
