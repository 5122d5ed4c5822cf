package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/storetest"
)

// opener returns a function that opens stores of one server with a test's clock: the script takes the time as an
// argument and does not ask TIME. So hours can be played in milliseconds. Everything else is as in production, also the
// state's own clock.
func opener(s *server) storetest.Open {
	client := s.client()
	return func(t testing.TB, rules bucket.Rules, clock *storetest.Clock) storetest.Store {
		st, err := New(context.Background(), Options{Client: client, API: names(), Rules: rules, Epoch: Fresh})
		if err != nil {
			t.Fatal(err)
		}
		st.now = clock.Now
		st.horizon.Store(0) // as in memory: no other replica asks further ahead
		return st
	}
}

func TestConforms(t *testing.T) { storetest.Run(t, opener(startServer(t)), 8) }

// TestAgreesWithMemory compares the Lua script with the Go code: the same schedules must get the same grants to the
// microsecond.
func TestAgreesWithMemory(t *testing.T) {
	storetest.Agree(t, func(t testing.TB, rules bucket.Rules, clock *storetest.Clock) storetest.Store {
		m, err := bucket.NewMemory(rules, clock.Now)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}, opener(startServer(t)), 12)
}

// TestRefundAfterTheLogExpired checks that a call that outlives its quota's log gives back no units of later calls.
func TestRefundAfterTheLogExpired(t *testing.T) {
	s, now, ctx := startServer(t), start, context.Background()
	r := newReplica(t, s, names(), Fresh, bucket.Rules{
		Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1000}}, Lease: time.Hour,
		Shared: []bucket.Limit{{Name: "minute", Quota: &bucket.Quota{Count: 3, Window: bucket.Sliding, Per: time.Minute}}},
	}, &now)
	early := r.left("k", 1)[0]
	now = now.Add(30 * time.Minute)
	if err := s.client().Del(ctx, r.prefix+"log:minute").Err(); err != nil { // as Redis does in time
		t.Fatal(err)
	}
	later := r.left("k", 5)
	if err := r.Settle(ctx, []bucket.Use{{Key: "k", Grant: early, Actual: []int64{0}}}); err != nil {
		t.Fatal(err)
	}
	if n := len(later) + len(r.left("k", 5)); n != 3 {
		t.Errorf("%d units within a minute, want 3", n)
	}
}

// TestReturnedUnitsLeaveNothingInTheLog checks that calls that are not made leave no entries in the log of a sliding
// quota, and that a call that took what it had reserved leaves one.
func TestReturnedUnitsLeaveNothingInTheLog(t *testing.T) {
	s, now, ctx := startServer(t), start, context.Background()
	r := newReplica(t, s, names(), Fresh, bucket.Rules{
		Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1000}}, Lease: time.Hour,
		Shared: []bucket.Limit{{Name: "hourly", Quota: &bucket.Quota{Count: 10, Window: bucket.Sliding, Per: time.Hour}}},
	}, &now)
	made := r.left("k", 1)[0]
	if err := r.Settle(ctx, []bucket.Use{{Key: "k", Grant: made, Actual: []int64{1}}}); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		var returned []bucket.Use
		for range 4 {
			now = now.Add(time.Second)
			returned = append(returned, bucket.Use{Key: "k", Grant: r.left("k", 1)[0], Returned: true})
		}
		returned[1], returned[3] = returned[3], returned[1]
		if err := r.Settle(ctx, returned); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.client().LLen(ctx, r.prefix+"log:hourly").Result(); err != nil || n != 1 {
		t.Errorf("%d entries (%v), want 1", n, err)
	}
	if n := len(r.left("k", 10)); n != 9 {
		t.Errorf("%d of 9 units are left", n)
	}
}

// TestRefusedRoundReadsTheLogOnce checks a round of dear asks that a sliding quota refuses. The script must read the
// quota's log once, and not once for each ask, because Redis serves no other client meanwhile.
func TestRefusedRoundReadsTheLogOnce(t *testing.T) {
	const entries = 500
	s, now, ctx := startServer(t), start, context.Background()
	r := newReplica(t, s, names(), Fresh, bucket.Rules{
		Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1000}},
		Shared: []bucket.Limit{{Name: "hourly", Quota: &bucket.Quota{Count: entries, Window: bucket.Sliding, Per: time.Hour}}},
	}, &now)
	for range entries {
		now = now.Add(time.Second)
		r.left("k", 1)
	}
	if err := s.client().ConfigResetStat(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	asks := make([]bucket.Ask, 64)
	for i := range asks {
		asks[i] = bucket.Ask{Key: fmt.Sprint("k", i), Limits: r.rules.Key, Want: 1, Costs: []int64{entries}}
	}
	got, err := r.Reserve(ctx, asks)
	if err != nil || got[63].Wait.Until != now.Add(time.Hour) {
		t.Fatalf("%+v, %v", got, err)
	}
	stats, err := s.client().Info(ctx, "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Fields(stats) {
		var reads int
		if _, counts, ok := strings.Cut(line, "cmdstat_l"); ok {
			if _, err := fmt.Sscanf(counts[strings.Index(counts, ":")+1:], "calls=%d", &reads); err != nil || reads > entries/10 {
				t.Errorf("%s (%v)", line, err)
			}
		}
	}
}

// TestAccountsConform checks apis of one account that are counted in Redis.
func TestAccountsConform(t *testing.T) { storetest.Accounts(t, accountOpener(startServer(t)), 8) }

// TestAccountsAgreeWithMemory compares the script with the Go code for apis of one account.
func TestAccountsAgreeWithMemory(t *testing.T) {
	storetest.AgreeOnAccounts(t, storetest.InMemory, accountOpener(startServer(t)), 12)
}

// accountOpener returns a function that opens stores of the apis of one account. Each account has a name of its own, so
// tests do not share accounts.
func accountOpener(s *server) storetest.OpenAccount {
	client := s.client()
	return func(t testing.TB, rules []bucket.Rules, clock *storetest.Clock) (stores []storetest.Store) {
		account := names()
		for i := range rules {
			st, err := New(context.Background(), Options{
				Client: client, API: rules[i].In.API, Rules: inTest(rules[i], account), Epoch: Fresh, Uncalled: true,
			})
			if err != nil {
				t.Fatal(err)
			}
			st.now = clock.Now
			st.horizon.Store(0)
			if _, err := st.Touch(context.Background()); err != nil {
				t.Fatal(err)
			}
			stores = append(stores, &accountStore{st, account})
		}
		return stores
	}
}

// inTest gives the account of rules another name.
func inTest(rules bucket.Rules, account string) bucket.Rules {
	in := *rules.In
	in.Account, rules.In, rules.Shared = account, &in, slices.Clone(rules.Shared)
	for i := range rules.Shared {
		if rules.Shared[i].Account != "" {
			rules.Shared[i].Account = account
		}
	}
	return rules
}

// accountStore is a Store of an account that was renamed by inTest.
type accountStore struct {
	*Store
	account string
}

// Apply puts rules in force, with the account renamed by inTest.
func (s *accountStore) Apply(rules bucket.Rules) error {
	if rules.In == nil {
		return s.Store.Apply(rules)
	}
	return s.Store.Apply(inTest(rules, s.account))
}
