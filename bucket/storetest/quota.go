package storetest

import (
	"slices"
	"time"

	"weir/bucket"
)

var quotaTests = []test{
	{"a calendar day opens at its zone's midnight", calendarDay},
	{"no slot at the edge of a period", guardBand},
	{"t = 60.000 belongs to the new window", fixedEdge},
	{"sliding log: 1:00:01 1:00:30 not 1:00:50 1:01:40", slidingLog},
	{"the edge burst of fixed windows does not fit a sliding one", edgeBurst},
	{"asks that are refused do not count", refusedDoNotCount},
	{"a large sliding quota, merged", slidingLarge},
	{"a budget tells what becomes of the job", budget},
	{"a budget that is not spent buries nothing at the edge of a period", budgetAtTheEdge},
	{"nor where a rate leads to it", rateAtTheEdge},
	{"headroom is taken off", headroom},
	{"several limits at once, all or nothing", allOrNothing},
}

func losAngeles(b *table) *time.Location {
	b.Helper()
	z, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		b.Fatal(err)
	}
	return z
}

func calendarDay(b *table) {
	z := losAngeles(b)
	b.lay(only(quota("daily", bucket.Quota{Count: 3, Window: bucket.Calendar, Unit: bucket.Day, Zone: z})))
	b.clock.now = bucket.MicrosOf(time.Date(2027, 3, 14, 12, 0, 0, 0, z)) // a day of 23 hours
	got := b.ask(bucket.Ask{Want: 5})
	end := bucket.MicrosOf(time.Date(2027, 3, 15, 0, 0, 0, 0, z))
	if len(got.Grants) != 3 {
		b.Errorf("%d grants, want 3: the fourth of three must be refused", len(got.Grants))
	}
	b.expectWait(got, bucket.Wait{Limit: "daily", Until: end})
	b.clock.now = end - 1
	b.expectWait(b.ask(bucket.Ask{}), bucket.Wait{Limit: "daily", Until: end})
	b.clock.now = end
	if n := len(b.ask(bucket.Ask{Want: 5}).Grants); n != 3 {
		b.Errorf("%d in the new day, want 3", n)
	}
}

func guardBand(b *table) {
	r := only(quota("minute", bucket.Quota{Count: 10, Window: bucket.Fixed, Per: time.Minute}))
	r.Jitter = 5 * time.Millisecond
	b.lay(r)
	b.expectSlots(b.ask(bucket.Ask{Horizon: time.Second}), 5000)
	b.clock.now = Start + 59_995_000
	b.expectSlots(b.ask(bucket.Ask{Horizon: time.Second}), 60_005_000)
	b.clock.now = Start + 59_990_000 // the later period has a slot: the earlier one is closed
	b.expectSlots(b.ask(bucket.Ask{Horizon: time.Second}), 60_005_000)
}

func fixedEdge(b *table) {
	b.lay(only(quota("minute", bucket.Quota{Count: 2, Window: bucket.Fixed, Per: time.Minute})))
	b.expectSlots(b.ask(bucket.Ask{Want: 3}), 0, 0)
	b.clock.now = Start + 59_999_999
	b.expectSlots(b.ask(bucket.Ask{Want: 3}))
	b.clock.now = Start + 60_000_000
	b.expectSlots(b.ask(bucket.Ask{Want: 3}), 60_000_000, 60_000_000)
}

func slidingLog(b *table) {
	b.lay(only(quota("log", bucket.Quota{Count: 2, Window: bucket.Sliding, Per: time.Minute})))
	hour := Start + 3_600_000_000
	var passed []int
	for _, s := range []bucket.Micros{1, 30, 50, 100} {
		b.clock.now = hour + s*1_000_000
		passed = append(passed, len(b.ask(bucket.Ask{}).Grants))
	}
	if !slices.Equal(passed, []int{1, 1, 0, 1}) {
		b.Errorf("passed %v, want 1 1 0 1", passed)
	}
}

// edgeBurst asks for 100 calls in the last 30 s of a minute and 100 in the first 20 s of the next. A fixed quota lets
// all 200 pass in 50 s, a sliding quota only 100.
func edgeBurst(b *table) {
	for _, c := range []struct {
		window bucket.Window
		want   int
	}{{bucket.Fixed, 200}, {bucket.Sliding, 100}} {
		b.lay(only(quota("q", bucket.Quota{Count: 100, Window: c.window, Per: time.Minute})))
		n := 0
		for _, s := range []bucket.Micros{30, 60} {
			b.clock.now = Start + s*1_000_000
			for range 4 {
				n += len(b.ask(bucket.Ask{Want: 50}).Grants)
				b.clock.now += 5_000_000
			}
		}
		if n != c.want {
			b.Errorf("%s: %d calls in 50 s, want %d", c.window, n, c.want)
		}
	}
}

func refusedDoNotCount(b *table) {
	b.lay(only(quota("log", bucket.Quota{Count: 2, Window: bucket.Sliding, Per: time.Minute})))
	n := 0
	for range 60 {
		n += len(b.ask(bucket.Ask{}).Grants)
		b.clock.now += 10_000_000
	}
	if n != 20 {
		b.Errorf("%d slots in ten minutes of asking every 10 s, want 20", n)
	}
}

func slidingLarge(b *table) {
	r := only(quota("hour", bucket.Quota{Count: 5000, Window: bucket.Sliding, Per: time.Hour}))
	r.Jitter = time.Second
	b.lay(r)
	var arrivals []bucket.Arrival
	for range 800 { // 2.2 hours in steps of 10 s, as many calls as pass
		got := b.ask(bucket.Ask{Want: 40})
		for _, g := range got.Grants {
			arrivals = append(arrivals, bucket.Arrival{At: int64(g.At) * 1000})
		}
		b.clock.now += 10_000_000
	}
	v := bucket.Check(arrivals, bucket.Expectation{Limit: b.rules.Shared[0]})
	if v.Outcome != bucket.Pass || v.Worst != 5000 || len(arrivals) < 5000*2+5000*2/10 {
		b.Errorf("%v", v)
	}
}

func budget(b *table) {
	b.lay(only(bucket.Limit{Name: "spend", Budget: &bucket.Budget{
		Quota:       bucket.Quota{Count: 1_000_000, Window: bucket.Calendar, Unit: bucket.Day, Zone: time.UTC},
		OnExhausted: bucket.DeadLetter,
	}}))
	midnight := Start + 16*3_600_000_000
	got := b.ask(bucket.Ask{Want: 5, Costs: []int64{400_000}})
	b.expectSlots(got, 0, 0)
	b.expectWait(got, bucket.Wait{Limit: "spend", Until: midnight, Exhausted: bucket.DeadLetter})
	b.expectWait(b.ask(bucket.Ask{Costs: []int64{1_000_001}}), bucket.Wait{Limit: "spend", Never: true, Exhausted: bucket.DeadLetter})
	b.expectSlots(b.ask(bucket.Ask{Costs: []int64{0}}), 0) // a call that costs nothing spends nothing
}

// budgetAtTheEdge checks that no slot lies within the jitter of midnight, not even a slot of an unspent budget. Waiting
// for the edge to pass does not count as spent.
func budgetAtTheEdge(b *table) {
	const jitter = 20_000
	day := bucket.Quota{Count: 1_000_000, Window: bucket.Calendar, Unit: bucket.Day, Zone: time.UTC}
	for _, q := range []bucket.Quota{day, {Count: 1_000_000, Window: bucket.Fixed, Per: 24 * time.Hour}} {
		r := only(bucket.Limit{Name: "spend", Budget: &bucket.Budget{Quota: q, OnExhausted: bucket.DeadLetter}})
		r.Jitter = jitter * time.Microsecond
		b.lay(r)
		first, second := Start+16*3_600_000_000, Start+40*3_600_000_000 // midnights
		one := bucket.Ask{Costs: []int64{400_000}}
		closed := bucket.Wait{Limit: "spend", Until: first + jitter}
		spent := func(until bucket.Micros) bucket.Wait {
			return bucket.Wait{Limit: "spend", Until: until + jitter, Exhausted: bucket.DeadLetter}
		}
		b.clock.now = first - jitter/2
		b.expectWait(b.ask(one), closed)
		b.clock.now = first + jitter/2
		b.expectWait(b.ask(one), closed)
		b.clock.now = first + jitter
		b.expectWait(b.ask(bucket.Ask{Want: 3, Costs: one.Costs}), spent(second))
		b.clock.now = second - jitter/2
		b.expectWait(b.ask(one), spent(second)) // the day that ends is spent
		b.clock.now = second + jitter/2
		b.expectWait(b.ask(one), bucket.Wait{Limit: "spend", Until: second + jitter})
	}
}

// rateAtTheEdge checks a job that another limit delays into the edge of a day: the budget only moves the job out of the
// edge.
func rateAtTheEdge(b *table) {
	r := only(sharedRate("account", 1, time.Hour, 1), bucket.Limit{Name: "spend", Budget: &bucket.Budget{
		Quota:       bucket.Quota{Count: 1_000_000, Window: bucket.Calendar, Unit: bucket.Day, Zone: time.UTC},
		OnExhausted: bucket.DeadLetter,
	}})
	r.Jitter = 20 * time.Millisecond
	b.lay(r)
	midnight := Start + 16*3_600_000_000
	b.clock.now = midnight - 3_600_000_000 - 15_000 // an hour and the jitter later a day has just begun
	b.ask(bucket.Ask{Costs: []int64{1, 400_000}})
	b.expectWait(b.ask(bucket.Ask{Costs: []int64{1, 400_000}}), bucket.Wait{Limit: "spend", Until: midnight + 20_000})
}

func headroom(b *table) {
	r := only(quota("daily", bucket.Quota{Count: 30, Window: bucket.Calendar, Unit: bucket.Day, Zone: time.UTC}),
		bucket.Limit{Name: "calls", InFlight: 50})
	r.Headroom = 15
	b.lay(r)
	if n := len(b.ask(bucket.Ask{Want: 64}).Grants); n != 25 {
		b.Errorf("%d of 30 less 15 %%, want 25", n)
	}
}

func allOrNothing(b *table) {
	b.lay(only(
		quota("small", bucket.Quota{Count: 1, Window: bucket.Fixed, Per: time.Hour}),
		quota("large", bucket.Quota{Count: 3, Window: bucket.Fixed, Per: 24 * time.Hour}),
		bucket.Limit{Name: "calls", InFlight: 2},
	))
	b.clock.now = Start - Start%86_400_000_000 + 86_400_000_000
	for hour := range 3 {
		got := b.ask(bucket.Ask{Want: 2})
		if len(got.Grants) != 1 {
			b.Fatalf("hour %d: %+v", hour, got)
		}
		for range 5 { // what one limit refuses must not count in the others
			b.ask(bucket.Ask{})
		}
		b.settle(bucket.Use{Key: "k", Grant: got.Grants[0]})
		b.clock.now += 3_600_000_000
	}
	got := b.ask(bucket.Ask{})
	if len(got.Grants) != 0 || got.Wait.Limit != "large" {
		b.Errorf("%+v", got)
	}
}
