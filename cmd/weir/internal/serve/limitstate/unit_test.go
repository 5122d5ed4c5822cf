package limitstate

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"weir/bucket"
	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// TestPoolCountsTheCallsOfItsAPIs checks that a start adds up an account's limits from all records that name these
// limits, whichever api made the call. An api's own limit of the same name is another limit.
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

	// After that only records of apis that may have had the account are read.
	if _, err := r.o.JetStream.Publish(t.Context(), ledger.CallsOf("four")[:len(ledger.CallsOf("four"))-1]+"k", []byte("no record")); err != nil {
		t.Fatal(err)
	}
	r.record(ledger.Record{
		API: "two", Key: "k", Job: "j", Stream: "WEIR_x_0", Seq: 9, Call: 1, Planned: time.Now(), Started: time.Now(),
		Sent: true, Outcome: ledger.Done, Final: true, Price: "0.00", Billed: deadletter.BilledYes, Instance: "test", Limits: []string{"acme/day"}, Costs: []int64{20},
	})
	r.catchUp()
	if used := r.note.Account.Of("acme/day").Used; used != 53 {
		t.Errorf("beside a record of another api that cannot be read, the account is %d, want 53", used)
	}
}

// TestAccountLeftWhileStopped checks a start whose configuration takes an api out of its account. Before the api is
// called, the stored checkpoint does not name it any more. What the account may have granted until the death of the
// former process counts, because the last calls of that api may be recorded at any time.
func TestAccountLeftWhileStopped(t *testing.T) {
	r := newAccountRig(t)
	shared := r.rules.Shared[0]
	shared.Name, shared.Account = "acme/day", "acme"
	rules := bucket.Rules{Key: r.rules.Key, Shared: []bucket.Limit{shared}, In: &bucket.Membership{Account: "acme", API: "one", APIs: []string{"one"}}}
	former := bucket.Snapshot{Made: 1, Until: 1, APIs: []string{"one", "two"}, Limit: []bucket.LimitSnapshot{{Name: "acme/day", Used: 3}}}
	former.Limit[0].Start, former.Limit[0].End = shared.Quota.Period(r.o.Clock.Now())
	data, err := json.Marshal(former)
	if err == nil {
		_, err = r.o.Control.Put(t.Context(), checkpointKey(accountPrefix+"acme"), data)
	}
	if err != nil {
		t.Fatal(err)
	}
	opened, store, err := openUnit(t.Context(), r.o, poolOf(rules), nil)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := r.o.Control.Get(t.Context(), checkpointKey(accountPrefix+"acme"))
	if err != nil {
		t.Fatal(err)
	}
	var s bucket.Snapshot
	if err := json.Unmarshal(kept.Value(), &s); err != nil || !slices.Equal(s.APIs, []string{"one"}) || len(s.Limit) != 1 {
		t.Errorf("the stored checkpoint is %s, %v", kept.Value(), err)
	}
	a := opened.state.(*checkpointer).accounts
	a.recovered = func() (int, bool) { return 0, true }
	if err := a.advance(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l := store.Levels()[0]; l.Used != 3 || l.Bound {
		t.Errorf("%d counts (bound: %v), want 3", l.Used, l.Bound)
	}
}

// TestGrownPoolWaits checks that the earlier calls of an api count in an account that it came to while weir was
// stopped. Until these calls are added up, the account grants nothing.
func TestGrownPoolWaits(t *testing.T) {
	r := newAccountRig(t)
	shared := r.rules.Shared[0]
	shared.Name, shared.Account = "acme/day", "acme"
	r.rules.Shared = []bucket.Limit{shared}
	r.rules.In = &bucket.Membership{Account: "acme", API: "one", APIs: []string{"one", "two"}}
	for _, c := range []struct {
		before  []string
		partial int
	}{{[]string{"one", "two"}, 0}, {[]string{"one"}, 1}, {nil, 1}} {
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

// TestPoolAddsUpWhatItsAPIsCalled checks how an account's quota that has missed calls is added up: from all calls of
// its present apis, including those before they came, and from the calls that another api made while it had the
// account.
func TestPoolAddsUpWhatItsAPIsCalled(t *testing.T) {
	r := newAccountRig(t)
	shared := r.rules.Shared[0]
	shared.Name, shared.Account = "acme/day", "acme"
	r.rules.Shared = []bucket.Limit{shared}
	r.rules.In = &bucket.Membership{Account: "acme", API: "one", APIs: []string{"one", "two"}}
	u := poolOf(r.rules)
	var err error
	if r.store, err = bucket.NewMemory(u.rules, r.o.Clock.Now); err != nil {
		t.Fatal(err)
	}
	r.store.Restore(bucket.Snapshot{})
	r.store.ExpectSums(bucket.Snapshot{}, true)
	if r.accounts, err = openAccounts(t.Context(), r.o, u, r.store, 0); err != nil {
		t.Fatal(err)
	}
	r.recovered, r.quiet = func() (int, bool) { return 0, true }, func() bool { return true }
	for i, c := range []struct {
		api    string
		limits []string
		costs  []int64
	}{
		{"one", nil, nil},
		{"two", []string{"acme/day"}, []int64{20}},
		{"three", []string{"acme/day"}, []int64{3}}, // it had the account then
		{"three", nil, nil},
		{"four", []string{"day"}, []int64{400}},
	} {
		r.record(ledger.Record{
			API: c.api, Key: "k", Job: "j", Stream: "WEIR_x_0", Seq: uint64(i + 1), Call: 1, Planned: time.Now().Add(-time.Minute), Started: time.Now(), //nolint:gosec // small
			Sent: true, Outcome: ledger.Done, Final: true, Price: "0.00", Billed: deadletter.BilledYes, Instance: "test", Limits: c.limits, Costs: c.costs,
		})
	}
	if err := r.fillIn(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.counts("acme/day", 24)
	if n := len(r.store.Partial()); n != 0 {
		t.Errorf("%d limits wait still", n)
	}
}

// caller is a Caller for tests. busy are the apis that have a call under way.
type caller struct{ busy map[string]bool }

func (c caller) Quiet(api string) bool              { return !c.busy[api] }
func (caller) Beside() bool                         { return false }
func (caller) Recovered(string) (int, bool)         { return 0, true }
func (caller) Price(string) int64                   { return 0 }
func (caller) FixedPrice(string) (int64, bool)      { return 0, true }
func (caller) HeardOfLevels(string, []bucket.Level) {}
func (caller) HeardOfLimiter(string, error)         {}
func (caller) CalendarMoved(string)                 {}

// TestPoolIsQuiet checks when an account is quiet: no call of its apis runs, nor of an api that has left lately, and
// every api has come.
func TestPoolIsQuiet(t *testing.T) {
	now, pools := bucket.Micros(1_800_000_000_000_000), &bucket.Pools{}
	rules := func(api string) bucket.Rules {
		return bucket.Rules{
			Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Second, Burst: 1}},
			In:  &bucket.Membership{Account: "acme", API: api, APIs: []string{"one", "two"}, Lease: time.Minute},
		}
	}
	u := poolOf(rules("one"))
	pool, err := bucket.NewMemory(u.rules, func() bucket.Micros { return now })
	if err != nil {
		t.Fatal(err)
	}
	pools.Add("acme", pool)
	check := func(want bool, busy ...string) {
		t.Helper()
		c := caller{map[string]bool{}}
		for _, api := range busy {
			c.busy[api] = true
		}
		if got := u.isQuiet(pool, c); got != want {
			t.Errorf("quiet is %v while %q run", got, busy)
		}
	}
	var stores []*bucket.Memory
	for _, api := range []string{"one", "two"} {
		check(false)
		m, err := bucket.NewMember(rules(api), pools, func() bucket.Micros { return now })
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, m)
	}
	check(true, "three")
	check(false, "two")
	removed := rules("one") // the configuration no longer has the api two, which goes on calling by its last rules
	removed.In.APIs = []string{"one"}
	if err := stores[0].Apply(removed); err != nil {
		t.Fatal(err)
	}
	check(false, "two")
	if err := stores[1].Apply(bucket.Rules{Key: rules("two").Key}); err != nil {
		t.Fatal(err)
	}
	alone := rules("one")
	alone.In.APIs = []string{"one"}
	if err := stores[0].Apply(alone); err != nil {
		t.Fatal(err)
	}
	check(false, "two")
	now = now.Add(time.Minute + recordWait)
	check(true, "two")
}

// TestForgottenAccount checks that an account begins anew after its apis were called without it. Their earlier calls,
// and calls that may be running, count as in a new account.
func TestForgottenAccount(t *testing.T) {
	r := newAccountRig(t)
	put := func(account string) {
		t.Helper()
		if _, err := r.o.Control.PutString(t.Context(), checkpointKey(accountPrefix+account), `{"made":1,"until":1,"apis":["one"],"limits":[{"name":"acme/day","used":3}]}`); err != nil {
			t.Fatal(err)
		}
	}
	put("acme")
	put("beta")
	if err := ForgetAccounts(t.Context(), r.o, func(account string) bool { return account == "beta" }); err != nil {
		t.Fatal(err)
	}
	r.record(ledger.Record{API: "one", Key: "k", Job: "j", Stream: "WEIR_one_0", Seq: 1, Call: 1, Started: time.Now(), Sent: true, Outcome: ledger.Done, Final: true})
	for account, want := range map[string]struct {
		limits int
		open   bool
	}{"acme": {0, true}, "beta": {1, false}, "gamma": {0, true}} {
		shared := r.rules.Shared[0]
		shared.Name, shared.Account = account+"/day", account
		rules := bucket.Rules{Key: r.rules.Key, Shared: []bucket.Limit{shared}, In: &bucket.Membership{Account: account, API: "one", APIs: []string{"one"}}}
		pool, err := bucket.NewMemory(rules.Pool(), r.o.Clock.Now)
		if err != nil {
			t.Fatal(err)
		}
		c, err := newCheckpointer(t.Context(), r.o, poolOf(rules), pool)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(c.restored.Limit); n != want.limits || c.restored.Open > 0 != want.open {
			t.Errorf("account %s begins with %d limits and %d open calls", account, n, c.restored.Open)
		}
		if err := c.save(t.Context(), checkpointAhead); err != nil {
			t.Errorf("account %s: %v", account, err)
		}
	}
}
