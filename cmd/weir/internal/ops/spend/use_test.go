package spend

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// TestUse checks the level of each kind of limit: it begins again with each calendar period, it leaves out what is
// older than a sliding one, and a rate has none. Calls from before a limit was in force do not count, and neither do
// calls that never reached the api.
func TestUse(t *testing.T) {
	c, err := config.Parse([]byte(`
apis:
  pay: {url: https://a, price: 0.50, bucket: {rate: 1/s, capacity: 1}, limits: [{name: pace, rate: 60/min}, {name: day, quota: 10/day}, {name: slide, quota: 9/3h, window: sliding}, {name: spend, budget: 5/day}, {name: running, in_flight: 3}]}
`), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	api, _ := c.API("pay")
	noon := time.Date(2026, 1, 2, 12, 7, 0, 0, time.UTC)
	u := newUse(api, noon)
	call := func(before time.Duration, limits ...string) {
		at := noon.Add(-before)
		u.addRecord(&ledger.Record{API: "pay", Planned: at, Started: at, Sent: true, Price: "0.50", Billed: deadletter.BilledYes, Outcome: ledger.Done, Limits: limits})
	}
	all := []string{"pace", "day", "slide", "spend", "running"}
	call(14*time.Hour, all...)  // the day before
	call(11*time.Hour, all...)  // today, out of the sliding window
	call(2*time.Hour, all...)   //
	call(2*time.Hour, "pace")   // the other limits were not in force
	call(5*time.Minute, all...) //
	u.addRecord(&ledger.Record{API: "pay", Planned: noon, Started: noon, Billed: deadletter.NotBilled, Limits: all})
	u.conclude()
	got := map[string]string{}
	for _, l := range u.Limits {
		n := len(l.Used)
		told := fmt.Sprintf("of %d", l.Allowance)
		sum := int64(0)
		for _, used := range l.Used {
			sum += used
		}
		if told += fmt.Sprintf(", %d in all", sum); l.Period {
			told += fmt.Sprintf(", before midnight %d, now %d, at most %d", l.Level[n-50], l.Level[n-1], slices.Max(l.Level))
		}
		got[l.Limit] = told
	}
	for limit, want := range map[string]string{
		"pace": "of 900, 5 in all", "day": "of 10, 4 in all, before midnight 1, now 3, at most 3",
		"slide": "of 9, 4 in all, before midnight 1, now 2, at most 2", "spend": "of 5000000, 2000000 in all, before midnight 500000, now 1500000, at most 1500000",
	} {
		if got[limit] != want {
			t.Errorf("%s: %s, want %s", limit, got[limit], want)
		}
	}
	if len(u.Limits) != 4 {
		t.Errorf("%d limits are told", len(u.Limits))
	}
}

// TestUseIsBounded checks that memory is bounded by the parts of the periods, in whichever order calls end, and
// whatever times their records have.
func TestUseIsBounded(t *testing.T) {
	c, err := config.Parse([]byte(`
apis:
  pay: {url: https://a, bucket: {rate: 1/s, capacity: 1}, limits: [{name: slide, quota: 9/3h, window: sliding}]}
`), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	api, _ := c.API("pay")
	noon := time.Date(2026, 1, 2, 12, 7, 0, 0, time.UTC)
	u := newUse(api, noon)
	for range 100 {
		for _, ago := range []time.Duration{5 * time.Hour, 6 * time.Hour, 200 * 24 * time.Hour, -30 * 24 * time.Hour} {
			at := noon.Add(-ago)
			u.addRecord(&ledger.Record{API: "pay", Planned: at, Started: at, Sent: true, Limits: []string{"slide"}})
		}
	}
	if u.conclude(); len(u.Limits[0].taken) != 2 || slices.Max(u.Limits[0].Level) != 200 {
		t.Errorf("%d parts are kept, and at most %d units were taken", len(u.Limits[0].taken), slices.Max(u.Limits[0].Level))
	}
}

// TestUsageIsAddedUp checks that usage adds up without overflow, also from calls that are not billed. These do not
// count as calls.
func TestUsageIsAddedUp(t *testing.T) {
	a := newAdder(Options{By: ByAPI})
	for _, billed := range []deadletter.Billed{deadletter.BilledYes, deadletter.NotBilled, deadletter.BilledYes} {
		a.add(&ledger.Record{API: "pay", Price: "0.50", Billed: billed, Usage: map[string]int64{"tokens": 3, "huge": math.MaxInt64 - 1}})
	}
	a.conclude()
	want := map[string]int64{"tokens": 9, "huge": math.MaxInt64}
	if g := a.account.Groups[0]; g.Calls != 2 || g.Spent != "1.00" || !maps.Equal(g.Usage, want) || !maps.Equal(a.account.Usage, want) {
		t.Errorf("%+v of %+v", g, a.account)
	}
}
