package bucket_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/bucket"
)

// apiStore is the store of one api in tests of accounts that change.
type apiStore struct {
	*bucket.Memory
	t     *testing.T
	name  string
	rules bucket.Rules
}

// accountsRig has pools and a clock.
type accountsRig struct {
	t     *testing.T
	now   bucket.Micros
	pools bucket.Pools
	pool  map[string]*bucket.Memory
}

func newAccountsRig(t *testing.T) *accountsRig {
	return &accountsRig{t: t, now: 1_800_000_000_000_000, pool: map[string]*bucket.Memory{}}
}

func (r *accountsRig) clock() bucket.Micros { return r.now }

// rules returns the rules of an api whose account has these apis and limits. Without apis the api has no account.
func (r *accountsRig) rules(api, account string, apis []string, limits ...bucket.Limit) bucket.Rules {
	rules := bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1_000_000, Per: time.Second, Burst: 1000}, InFlight: 100}, Lease: time.Minute}
	if account == "" {
		return rules
	}
	rules.In = &bucket.Membership{Account: account, API: api, APIs: apis, Lease: time.Minute}
	for _, l := range limits {
		l.Name, l.Account = account+"/"+l.Name, account
		rules.Shared = append(rules.Shared, l)
	}
	return rules
}

// open opens an api's store, and the pool of its account.
func (r *accountsRig) open(api string, rules bucket.Rules) *apiStore {
	r.t.Helper()
	r.openPool(rules)
	m, err := bucket.NewMember(rules, &r.pools, r.clock)
	if err != nil {
		r.t.Fatal(err)
	}
	return &apiStore{m, r.t, api, rules}
}

func (r *accountsRig) openPool(rules bucket.Rules) {
	r.t.Helper()
	if rules.In == nil || r.pool[rules.In.Account] != nil {
		return
	}
	pool, err := bucket.NewMemory(rules.Pool(), r.clock)
	if err != nil {
		r.t.Fatal(err)
	}
	r.pool[rules.In.Account] = pool
	r.pools.Add(rules.In.Account, pool)
}

// turn puts an api's next rules in force.
func (r *accountsRig) turn(a *apiStore, rules bucket.Rules) {
	r.t.Helper()
	r.openPool(rules)
	if err := a.Apply(rules); err != nil {
		r.t.Fatal(err)
	}
	a.rules = rules
}

// take asks for up to most calls one by one, and returns the grants.
func (a *apiStore) take(most int) (grants []bucket.Grant) {
	a.t.Helper()
	for range most {
		got, err := a.Reserve(context.Background(), []bucket.Ask{{Key: "k", Limits: a.rules.Key, Want: 1, Horizon: time.Millisecond}})
		if err != nil {
			a.t.Fatal(err)
		}
		grants = append(grants, got[0].Grants...)
	}
	return grants
}

func (a *apiStore) end(grants ...bucket.Grant) {
	for _, g := range grants {
		_ = a.Settle(context.Background(), []bucket.Use{{Key: "k", Grant: g}})
	}
}

func running(most int64) bucket.Limit { return bucket.Limit{Name: "running", InFlight: most} }

var oneAndTwo = []string{"one", "two"}

// TestCallsComeAlongToAnAccount checks that calls which run when their api joins an account count there as calls in
// flight until they end. The api was alone before, or in another account. They are not confused with calls of an api
// that was in the account all the time.
func TestCallsComeAlongToAnAccount(t *testing.T) {
	for _, from := range []string{"", "other"} {
		t.Run("from="+from, func(t *testing.T) {
			r := newAccountsRig(t)
			one := r.open("one", r.rules("one", "acme", []string{"one"}, running(5)))
			two := r.open("two", r.rules("two", from, []string{"two"}, running(9)))
			before, stayed := two.take(3), one.take(2)
			r.turn(one, r.rules("one", "acme", oneAndTwo, running(5)))
			if n := len(one.take(5)); n != 0 {
				t.Errorf("before the other api came, %d calls were granted", n)
			}
			r.turn(two, r.rules("two", "acme", oneAndTwo, running(5)))
			if n := len(one.take(5)) + len(two.take(5)); n != 0 {
				t.Errorf("beside 5 calls of 5, %d were granted", n)
			}
			two.end(before...)
			two.end(before...) // twice
			after := slices.Concat(one.take(2), one.take(0))
			if n := len(after) + len(two.take(5)); n != 3 {
				t.Errorf("3 calls ended, and %d were granted", n)
			}
			one.end(stayed...)
			if n := len(two.take(5)); n != 2 {
				t.Errorf("2 calls ended, and %d were granted", n)
			}
			if from != "" {
				rival := r.open("three", r.rules("three", from, []string{"three"}, running(9)))
				if n := len(rival.take(20)); n != 9 {
					t.Errorf("in the account that the api has left, %d of 9 calls were granted after all ended", n)
				}
			}
		})
	}
}

// TestReturnToAnAccount checks an api that leaves an account and comes back. The account counts its running calls once.
// The calls that the api made elsewhere meanwhile count as used.
func TestReturnToAnAccount(t *testing.T) {
	hourly := bucket.Limit{Name: "rate", Rate: &bucket.Rate{Count: 10, Per: time.Hour, Burst: 10}}
	r := newAccountsRig(t)
	in := func(api string) bucket.Rules { return r.rules(api, "acme", oneAndTwo, running(6)) }
	one, two := r.open("one", in("one")), r.open("two", in("two"))
	first := one.take(2)
	r.turn(one, r.rules("one", "", nil))
	alone := one.take(3)
	r.turn(one, in("one"))
	if n := len(two.take(9)); n != 1 {
		t.Errorf("beside 5 running calls of 6, %d were granted", n)
	}
	one.end(first...)
	one.end(alone...)
	if n := len(two.take(9)); n != 5 {
		t.Errorf("after 5 calls ended, %d were granted", n)
	}

	r = newAccountsRig(t)
	of := func(api string) bucket.Rules { return r.rules(api, "acme", oneAndTwo, hourly) }
	one, two = r.open("one", of("one")), r.open("two", of("two"))
	one.take(1)
	r.turn(one, r.rules("one", "", nil))
	r.turn(two, r.rules("two", "", nil))
	one.take(10)
	r.turn(one, of("one"))
	r.turn(two, of("two"))
	if n := len(two.take(9)); n != 0 {
		t.Errorf("after an account was given up and taken up again, %d calls of its rate were granted at once", n)
	}
}

// TestOperationOfAFormerAccount checks that an operation which holds a slot when its api changes accounts ends in both
// accounts.
func TestOperationOfAFormerAccount(t *testing.T) {
	r := newAccountsRig(t)
	two := r.open("two", r.rules("two", "other", []string{"two"}, running(1)))
	operation := bucket.Use{Key: "k", Grant: bucket.Grant{Serial: -3}, Hold: time.Hour}
	_ = two.Settle(context.Background(), []bucket.Use{operation})
	r.turn(two, r.rules("two", "acme", []string{"two"}, running(1)))
	if n := len(two.take(2)); n != 0 {
		t.Errorf("beside an operation that came along, %d calls were granted", n)
	}
	operation.Hold = 0
	_ = two.Settle(context.Background(), []bucket.Use{operation})
	rival := r.open("three", r.rules("three", "other", []string{"three"}, running(1)))
	if n := len(two.take(2)); n != 1 {
		t.Errorf("after the operation, %d calls were granted of 1", n)
	}
	if n := len(rival.take(2)); n != 1 {
		t.Errorf("in the former account %d calls were granted of 1 after the operation", n)
	}
}

// TestNewLimitCountsRunningCalls checks that a new limit of calls in flight counts the calls that run, at an api that
// had no shared limits.
func TestNewLimitCountsRunningCalls(t *testing.T) {
	r := newAccountsRig(t)
	one := r.open("one", r.rules("one", "", nil))
	first := one.take(3)
	rules := r.rules("one", "", nil)
	rules.Shared = []bucket.Limit{running(4)}
	r.turn(one, rules)
	if n := len(one.take(4)); n != 1 {
		t.Errorf("beside 3 running calls of 4, %d were granted", n)
	}
	one.end(first...)
	if n := len(one.take(4)); n != 3 {
		t.Errorf("after 3 calls ended, %d were granted", n)
	}
}

// TestRestartWithAnotherAPI checks a restart that brings an api to an account. All permits are then taken for one
// lease, because the account does not know how many calls of that api run.
func TestRestartWithAnotherAPI(t *testing.T) {
	for _, c := range []struct {
		before []string
		want   int
	}{{[]string{"one"}, 0}, {oneAndTwo, 3}, {nil, 0}} {
		t.Run(fmt.Sprint(c.before), func(t *testing.T) {
			r := newAccountsRig(t)
			rules := r.rules("one", "acme", oneAndTwo, running(3))
			r.openPool(rules)
			pool := r.pool["acme"]
			pool.Restore(bucket.Snapshot{APIs: c.before, Limit: []bucket.LimitSnapshot{{Name: "acme/running"}}})
			one := r.open("one", rules)
			r.open("two", r.rules("two", "acme", oneAndTwo, running(3)))
			pool.Saved(pool.Checkpoint(2 * time.Second))
			if n := len(one.take(4)); n != c.want {
				t.Errorf("after a life with the apis %v %d calls of 3 were granted, want %d", c.before, n, c.want)
			}
			r.now = r.now.Add(2 * time.Minute)
			pool.Saved(pool.Checkpoint(2 * time.Second))
			if n := len(one.take(4)); n != 3 {
				t.Errorf("after a lease %d of 3 were granted", n)
			}
		})
	}
}

// TestSnapshotNamesItsAPIs checks that a snapshot of an account names the apis that count in it, so that a later start
// knows which apis have been called without it.
func TestSnapshotNamesItsAPIs(t *testing.T) {
	r := newAccountsRig(t)
	in := func(api string) bucket.Rules { return r.rules(api, "acme", oneAndTwo, running(6)) }
	one, two := r.open("one", in("one")), r.open("two", in("two"))
	for _, c := range []struct {
		leaves *apiStore
		want   []string
	}{{nil, oneAndTwo}, {two, []string{"one"}}, {one, nil}} {
		if c.leaves != nil {
			r.turn(c.leaves, r.rules(c.leaves.name, "", nil))
		}
		if got := r.pool["acme"].Checkpoint(time.Second).APIs; !slices.Equal(got, c.want) {
			t.Errorf("the snapshot names the apis %v, want %v", got, c.want)
		}
	}
}

// TestLateChangeUndoesNoNewerOne checks an api that takes in a change late, after another api has taken in a newer
// change. The account's limits stay those of the newer change.
func TestLateChangeUndoesNoNewerOne(t *testing.T) {
	for _, late := range []string{"two", "three"} {
		t.Run(late+" is late", func(t *testing.T) {
			r := newAccountsRig(t)
			at := func(version int64, api string, limits ...bucket.Limit) bucket.Rules {
				rules := r.rules(api, "acme", []string{"one", "three", "two"}, limits...)
				rules.Version = version
				return rules
			}
			three := r.open("three", r.rules("three", "", nil))
			one, two := r.open("one", at(1, "one", running(3))), r.open("two", at(1, "two", running(3)))
			wider := running(30)
			r.turn(one, at(2, "one", wider))
			r.turn(one, at(3, "one", running(3)))
			if late == "two" {
				r.turn(three, at(3, "three", running(3)))
				r.turn(two, at(2, "two", wider))
			} else {
				r.turn(two, at(3, "two", running(3)))
				r.turn(three, at(2, "three", wider))
			}
			if n := len(one.take(5)); n != 3 {
				t.Errorf("%d calls of 3 were granted", n)
			}
			r.turn(one, at(4, "one", running(4)))
			if n := len(one.take(5)); n != 1 {
				t.Errorf("after the next change %d more calls of 1 were granted", n)
			}
		})
	}
}

// TestAccountTakenUpAgain checks an account that all apis have left and come back to. It grants nothing until the last
// of them has come. A new api may be the first to come.
func TestAccountTakenUpAgain(t *testing.T) {
	for _, first := range []string{"one", "new"} {
		t.Run(first+" comes first", func(t *testing.T) {
			r := newAccountsRig(t)
			apis := oneAndTwo
			in := func(api string) bucket.Rules { return r.rules(api, "acme", apis, running(6)) }
			one, two := r.open("one", in("one")), r.open("two", in("two"))
			r.turn(one, r.rules("one", "", nil))
			r.turn(two, r.rules("two", "", nil))
			caller := one
			if first == "new" {
				apis = []string{"new", "one", "two"}
				caller = r.open("new", in("new"))
			}
			r.turn(one, in("one"))
			if n := len(caller.take(3)); n != 0 || !r.pool["acme"].Awaits() {
				t.Errorf("before the last api came, %d calls were granted", n)
			}
			r.turn(two, in("two"))
			if n := len(caller.take(3)); n != 3 {
				t.Errorf("after the last api came, %d of 3 calls were granted", n)
			}
		})
	}
}

// TestLeaverWaitsForASnapshot checks that an api that leaves its account is called only when a snapshot is stored that
// does not name it. So if the process dies and the api comes back, the account knows that the api was called elsewhere.
func TestLeaverWaitsForASnapshot(t *testing.T) {
	r := newAccountsRig(t)
	in := func(api, account string) bucket.Rules { return r.rules(api, account, oneAndTwo, running(6)) }
	r.openPool(in("one", "acme"))
	pool := r.pool["acme"]
	pool.Restore(bucket.Snapshot{})
	one, two := r.open("one", in("one", "acme")), r.open("two", in("two", "acme"))
	save := func() { pool.Saved(pool.Checkpoint(time.Minute)) }
	save()
	if n := len(one.take(1)) + len(two.take(1)); n != 2 {
		t.Fatalf("%d of 2 calls were granted", n)
	}
	before := pool.Checkpoint(time.Minute)
	r.turn(two, r.rules("two", "other", []string{"two"}, running(6)))
	r.turn(two, r.rules("two", "", nil))
	if n := len(two.take(1)); n != 0 {
		t.Errorf("while the stored snapshot names the api, %d calls were granted", n)
	}
	pool.Saved(before)
	if n := len(two.take(1)); n != 0 {
		t.Errorf("after a snapshot was stored that was made before the api left, %d calls were granted", n)
	}
	save()
	if n := len(two.take(1)); n != 1 {
		t.Errorf("after the next snapshot %d of 1 calls were granted", n)
	}
}
