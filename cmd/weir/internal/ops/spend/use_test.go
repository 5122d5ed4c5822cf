package spend

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// TestUse: the level of a calendar period begins anew with each period, a sliding one forgets what is older than it, a
// rate has none; what a call took before the limit was in force does not count, nor what never reached the api.
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
		u.add(&ledger.Record{API: "pay", Planned: at, Started: at, Sent: true, Price: "0.50", Billed: deadletter.BilledYes, Outcome: ledger.Done, Limits: limits})
	}
	all := []string{"pace", "day", "slide", "spend", "running"}
	call(14*time.Hour, all...)  // the day before
	call(11*time.Hour, all...)  // today, out of the sliding window
	call(2*time.Hour, all...)   //
	call(2*time.Hour, "pace")   // the others were not in force
	call(5*time.Minute, all...) //
	u.add(&ledger.Record{API: "pay", Planned: noon, Started: noon, Billed: deadletter.NotBilled, Limits: all})
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
