package limitstate

import (
	"testing"
	"time"

	"weir/bucket"
	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// TestPoolCountsTheCallsOfItsAPIs: what the limits of an account used before a start is what records say that name these
// limits, whichever api they are of. A limit of the same name that an api has alone is another one.
func TestPoolCountsTheCallsOfItsAPIs(t *testing.T) {
	r := newAccountRig(t)
	day := r.rules.Shared[0]
	shared := day
	shared.Name, shared.Account = "acme/day", "acme"
	r.rules.Shared = []bucket.Limit{day, shared}
	r.rules.In = &bucket.Membership{Account: "acme", API: "one", APIs: []string{"one", "two"}}
	u := poolOf(r.rules)
	var err error
	if r.store, err = bucket.NewMemory(u.rules, r.o.Clock.Now); err != nil {
		t.Fatal(err)
	}
	start, end := day.Quota.Period(r.o.Clock.Now())
	r.store.Restore(bucket.Snapshot{APIs: []string{"one", "two"}, Limit: []bucket.LimitSnapshot{{Name: "acme/day", Used: 500, Start: start, End: end}}})
	if r.accounts, err = openAccounts(t.Context(), r.o, u, r.store, 0); err != nil {
		t.Fatal(err)
	}
	r.recovered = func() (int, bool) { return 0, true }
	for i, c := range []struct {
		api    string
		limits []string
		costs  []int64
	}{
		{"one", []string{"day", "acme/day"}, []int64{1, 10}},
		{"two", []string{"acme/day"}, []int64{20}},
		{"two", []string{"day"}, []int64{400}},
		{"three", []string{"acme/day"}, []int64{3}}, // it had the account then
	} {
		r.record(ledger.Record{
			API: c.api, Key: "k", Job: "j", Stream: "WEIR_x_0", Seq: uint64(i + 1), Call: 1, Planned: time.Now().Add(-time.Minute), Started: time.Now(), //nolint:gosec // small
			Sent: true, Outcome: ledger.Done, Final: true, Price: "0.00", Billed: deadletter.BilledYes, Instance: "test", Limits: c.limits, Costs: c.costs,
		})
	}
	if l := r.store.Levels()[0]; l.Used != 500 || !l.Bound {
		t.Errorf("before it is known %d counts (bound: %v), want the bound of 500", l.Used, l.Bound)
	}
	r.catchUp()
	r.counts("acme/day", 33)
}

// TestGrownPoolWaits: an api that has come to an account while weir was stopped brings along what it was called for: until
// that is added up, the account grants nothing.
func TestGrownPoolWaits(t *testing.T) {
	r := newAccountRig(t)
	shared := r.rules.Shared[0]
	shared.Name, shared.Account = "acme/day", "acme"
	r.rules.Shared = []bucket.Limit{shared}
	r.rules.In = &bucket.Membership{Account: "acme", API: "one", APIs: []string{"one", "two"}}
	for _, c := range []struct {
		before  []string
		partial int
	}{{[]string{"one", "two"}, 0}, {[]string{"one"}, 1}, {nil, 0}} {
		pool, err := bucket.NewMemory(r.rules.Pool(), r.o.Clock.Now)
		if err != nil {
			t.Fatal(err)
		}
		pool.Restore(bucket.Snapshot{APIs: c.before, Limit: []bucket.LimitSnapshot{{Name: "acme/day", Exact: true}}})
		if n := len(pool.Partial()); n != c.partial {
			t.Errorf("after a life with the apis %v %d limits wait for the ledger, want %d", c.before, n, c.partial)
		}
	}
}
