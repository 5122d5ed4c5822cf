package redisstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"weir/bucket"
	"weir/ingest/await"
)

const start = bucket.Micros(1_800_000_000_000_000)

// replica is one store of an api that reads the test's clock.
type replica struct {
	*Store
	t testing.TB
}

func newReplica(t testing.TB, s *server, api, epoch string, rules bucket.Rules, clock *bucket.Micros) replica {
	t.Helper()
	st, err := New(context.Background(), Options{Client: s.client(), API: api, Rules: rules, Epoch: epoch})
	if err != nil {
		t.Fatal(err)
	}
	st.now = func() bucket.Micros { return *clock }
	return replica{st, t}
}

// left asks for want slots of a key that may leave now, and returns the grants.
func (r replica) left(key string, want int) []bucket.Grant {
	r.t.Helper()
	got, err := r.Reserve(context.Background(), []bucket.Ask{{Key: key, Limits: r.rules.Key, Want: want}})
	if err != nil {
		r.t.Fatal(err)
	}
	return got[0].Grants
}

func lossRules() bucket.Rules {
	return bucket.Rules{
		Key:   bucket.KeyLimits{Rate: bucket.Rate{Count: 100, Per: time.Minute, Burst: 5}}, // one every 625 ms
		Lease: 30 * time.Second,
		Shared: []bucket.Limit{
			{Name: "account", Rate: &bucket.Rate{Count: 1000, Per: time.Minute, Burst: 20}}, // one every 62 ms
			{Name: "minute", Quota: &bucket.Quota{Count: 30, Window: bucket.Sliding, Per: time.Minute}},
			{Name: "daily", Quota: &bucket.Quota{Count: 40, Window: bucket.Fixed, Per: 24 * time.Hour}},
			{Name: "calls", InFlight: 10},
		},
	}
}

// TestLossIsNeverAFullBucket loses the state in every possible way. After each loss no call may leave that could not
// have left without the loss.
func TestLossIsNeverAFullBucket(t *testing.T) {
	ctx := context.Background()
	for name, lose := range map[string]func(*server){
		"flushed": func(s *server) {
			if err := s.client().FlushAll(ctx).Err(); err != nil {
				t.Fatal(err)
			}
		},
		"killed without persistence": func(s *server) { s.kill(); s.start() },
		"an older copy": func(s *server) {
			s.kill()
			if err := os.Rename(filepath.Join(s.dir, "older.rdb"), filepath.Join(s.dir, "dump.rdb")); err != nil {
				t.Fatal(err)
			}
			s.start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t)
			clock := start
			r := newReplica(t, s, "api", Fresh, lossRules(), &clock)
			if n := len(r.left("before", 2)); n != 2 {
				t.Fatalf("%d of 2 left a fresh api", n)
			}
			if err := s.client().Save(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(s.dir, "dump.rdb"), filepath.Join(s.dir, "older.rdb")); err != nil {
				t.Fatal(err)
			}
			if n := len(r.left("k", 5)); n != 5 {
				t.Fatalf("%d of 5 left", n)
			}
			epoch := r.Epoch()
			lose(s)
			for _, key := range []string{"k", "new", "before"} {
				if g := r.left(key, 5); len(g) != 0 {
					t.Errorf("%d calls of %s left just after the loss", len(g), key)
				}
			}
			if r.Epoch() == epoch {
				t.Error("the loss has no new epoch")
			}
			clock += 3_000_000
			if g := r.left("k", 5); len(g) != 0 {
				t.Error("permits of calls that may be running were given again")
			}
			clock += 28_000_000
			if g := r.left("k", 5); len(g) != 0 {
				t.Error("a sliding quota that nobody knows was given again")
			}
			clock += 60_000_000
			if g := r.left("k", 5); len(g) != 0 {
				t.Error("a day's quota that nobody knows was given again")
			}
			clock += 86_400_000_000
			if g := r.left("k", 5); len(g) != 5 {
				t.Errorf("a day later %d of 5 left", len(g))
			}
		})
	}
}

// TestLossOfOwnRatesWaitsOneBurst checks that without shared limits calls resume when the lost buckets must have
// drained.
func TestLossOfOwnRatesWaitsOneBurst(t *testing.T) {
	s := startServer(t)
	clock := start
	rules := bucket.Rules{Key: lossRules().Key}
	r := newReplica(t, s, "api", Fresh, rules, &clock)
	r.left("k", 5)
	if err := s.client().FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	var arrivals []bucket.Arrival
	for range 200 {
		for _, g := range r.left("k", 5) {
			arrivals = append(arrivals, bucket.Arrival{At: int64(g.At) * 1000})
		}
		clock += 50_000
	}
	if len(arrivals) == 0 || arrivals[0].At < int64(start+625_000)*1000 {
		t.Errorf("first call after the loss: %v", arrivals)
	}
	arrivals = append(arrivals, bucket.Arrival{At: int64(start) * 1000, Cost: 5})
	if v := bucket.Check(arrivals, bucket.Expectation{Limit: bucket.Limit{Rate: &rules.Key.Rate}}); v.Outcome != bucket.Pass || len(arrivals) < 10 {
		t.Error(v)
	}
}

// TestAnotherReplicaKnowsTheLoss checks that a replica that starts with a recorded epoch does not accept an empty
// server. A running replica continues with the new state after another replica has noticed the loss.
func TestAnotherReplicaKnowsTheLoss(t *testing.T) {
	s := startServer(t)
	clock := start
	rules := bucket.Rules{Key: lossRules().Key}
	one := newReplica(t, s, "api", Fresh, rules, &clock)
	two := newReplica(t, s, "api", Fresh, rules, &clock)
	one.left("k", 1)
	two.left("k", 1)
	if one.Epoch() != two.Epoch() {
		t.Error("two replicas of one api see different epochs")
	}
	if err := s.client().FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	restarted := newReplica(t, s, "api", one.Epoch(), rules, &clock)
	for _, r := range []replica{restarted, two, one} {
		if g := r.left("k", 1); len(g) != 0 {
			t.Error("a lost bucket was full")
		}
	}
	if one.Epoch() != two.Epoch() || one.Epoch() != restarted.Epoch() {
		t.Error("the replicas do not agree on the new epoch")
	}
	unknown := newReplica(t, s, "other", "", rules, &clock)
	if g := unknown.left("k", 1); len(g) != 0 {
		t.Error("an empty server was believed by one who knew nothing")
	}
}

// TestAnOlderCopyIsKnownAfterARestart checks that a Store's Mark reveals an older copy, even if no process saw the
// change.
func TestAnOlderCopyIsKnownAfterARestart(t *testing.T) {
	ctx := context.Background()
	s := startServer(t)
	clock := start
	rules := bucket.Rules{Key: lossRules().Key}
	r := newReplica(t, s, "api", Fresh, rules, &clock)
	r.left("k", 1)
	if err := s.client().Save(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	if n := len(r.left("k", 4)); n != 4 {
		t.Fatalf("%d of 4 left", n)
	}
	epoch, asked := r.Mark()
	s.kill()
	s.start()
	restarted, err := New(ctx, Options{Client: s.client(), API: "api", Rules: rules, Epoch: epoch, Asked: asked})
	if err != nil {
		t.Fatal(err)
	}
	restarted.now = func() bucket.Micros { return clock }
	if g := (replica{restarted, t}).left("k", 1); len(g) != 0 {
		t.Error("an older copy was believed")
	}
}

// TestSeedWaitsForItsPeriod checks that a loss just before the end of a period marks the next period as full: the use
// of the present period says nothing about it.
func TestSeedWaitsForItsPeriod(t *testing.T) {
	ctx := context.Background()
	s := startServer(t)
	const hour = bucket.Micros(3_600_000_000)
	clock := start - start%hour + hour - 500_000
	rules := bucket.Rules{Key: lossRules().Key, Shared: []bucket.Limit{
		{Name: "hourly", Quota: &bucket.Quota{Count: 40, Window: bucket.Fixed, Per: time.Hour}},
	}}
	r := newReplica(t, s, "api", Fresh, rules, &clock)
	r.left("k", 1)
	if err := s.client().FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	r.left("k", 1)
	for range 2 {
		if err := r.Seed(ctx, map[string]int64{"hourly": 3}); err != nil {
			t.Fatal(err)
		}
		unknown, err := r.Unknown(ctx)
		if early := clock%hour > hour/2; err != nil || (len(unknown) == 1) != early {
			t.Errorf("unknown at %s: %v %v", clock.Time(), unknown, err)
		}
		clock += hour / 2
	}
	if n := len(r.left("k", 5)); n != 5 {
		t.Errorf("%d left of a quota that is hardly used", n)
	}
}

func TestUnreachableGrantsNothing(t *testing.T) {
	s := startServer(t)
	clock := start
	r := newReplica(t, s, "api", Fresh, bucket.Rules{Key: lossRules().Key}, &clock)
	r.left("k", 1)
	s.kill()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if got, err := r.Reserve(ctx, []bucket.Ask{{Key: "k", Limits: r.rules.Key, Want: 1}}); err == nil {
		t.Errorf("granted without a server: %+v", got)
	}
	if err := r.Settle(ctx, []bucket.Use{{Key: "k"}}); err == nil {
		t.Error("settled without a server")
	}
}

func TestScriptCacheLost(t *testing.T) {
	s := startServer(t)
	clock := start
	r := newReplica(t, s, "api", Fresh, bucket.Rules{Key: lossRules().Key}, &clock)
	r.left("k", 1)
	if err := s.client().ScriptFlush(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	if n := len(r.left("k", 9)); n != 4 {
		t.Errorf("%d left after SCRIPT FLUSH, want the 4 remaining of the burst", n)
	}
}

func TestEvictionIsRefused(t *testing.T) {
	s := startServer(t, "--maxmemory-policy", "allkeys-lru")
	_, err := New(context.Background(), Options{Client: s.client(), API: "a", Rules: lossRules()})
	if !errors.Is(err, ErrEviction) {
		t.Errorf("err = %v", err)
	}
}

// TestStateExpiresOnlyWhenItIsEmpty checks that state lives as long as its debt. In other limiters state expired too
// early, and slow rates began again with a full burst.
func TestStateExpiresOnlyWhenItIsEmpty(t *testing.T) {
	s := startServer(t)
	clock := start
	rules := bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: 2 * time.Second, Burst: 1}}}
	r := newReplica(t, s, "api", Fresh, rules, &clock)
	began := time.Now()
	got, err := r.Reserve(context.Background(), []bucket.Ask{{Key: "k", Limits: rules.Key, Want: 3, Horizon: time.Minute}})
	if err != nil || len(got[0].Grants) != 3 {
		t.Fatal(got, err)
	}
	ttl, err := s.client().PTTL(context.Background(), "{weir:api}:key:k").Result()
	if err != nil || ttl < 8*time.Second-time.Since(began) || ttl > 10*time.Second {
		t.Errorf("the key lives %s, want 6 s of debt, 2 s of burst and 1 s (%v)", ttl, err)
	}
}

// TestReplicasTogetherKeepEveryLimit lets several replicas reserve at the same time by Redis TIME, and checks all their
// grants, merged, against every limit. The test does not wait: slots are taken far ahead.
func TestReplicasTogetherKeepEveryLimit(t *testing.T) {
	s := startServer(t)
	rules := bucket.Rules{
		Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 50, Per: time.Second, Burst: 2}}, Jitter: 5 * time.Millisecond,
		Shared: []bucket.Limit{
			{Name: "account", Rate: &bucket.Rate{Count: 200, Per: time.Second, Burst: 10}},
			{Name: "ten", Quota: &bucket.Quota{Count: 500, Window: bucket.Sliding, Per: 10 * time.Second}},
			{Name: "hour", Quota: &bucket.Quota{Count: 1_000_000, Window: bucket.Calendar, Unit: bucket.Hour, Zone: time.UTC}},
		},
	}
	var mu sync.Mutex
	var all []bucket.Arrival
	keys := map[string][]bucket.Arrival{}
	var wg sync.WaitGroup
	for range 3 {
		st, err := New(context.Background(), Options{Client: s.client(), API: "api", Rules: rules, Epoch: Fresh})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for i := range 50 {
				var asks []bucket.Ask
				for k := range 4 {
					asks = append(asks, bucket.Ask{Key: fmt.Sprint("k", (i+k)%5), Limits: rules.Key, Want: 2, Horizon: 20 * time.Minute})
				}
				got, err := st.Reserve(context.Background(), asks)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for j, a := range got {
					for _, g := range a.Grants {
						x := bucket.Arrival{At: int64(g.At) * 1000}
						all = append(all, x)
						keys[asks[j].Key] = append(keys[asks[j].Key], x)
					}
				}
				mu.Unlock()
			}
		})
	}
	await.Return(t, "all askers", wg.Wait)
	if len(all) < 1000 {
		t.Fatalf("only %d grants", len(all))
	}
	for _, l := range rules.Shared {
		if v := bucket.Check(all, bucket.Expectation{Limit: l, Jitter: rules.Jitter}); v.Outcome != bucket.Pass {
			t.Errorf("%s: %v", l.Name, v)
		}
	}
	for k, a := range keys {
		if v := bucket.Check(a, bucket.Expectation{Limit: bucket.Limit{Rate: &rules.Key.Rate}, Jitter: rules.Jitter}); v.Outcome != bucket.Pass {
			t.Errorf("%s: %v", k, v)
		}
	}
}

// TestSeedEndsNotKnowing checks that the ledger's count opens a lost quota again, as far as the quota is not used.
func TestSeedEndsNotKnowing(t *testing.T) {
	s := startServer(t)
	ctx := context.Background()
	clock := start
	rules := lossRules()
	rules.Shared = append(rules.Shared[1:3:3], bucket.Limit{Name: "spend", Budget: &bucket.Budget{
		Quota:       bucket.Quota{Count: 50, Window: bucket.Calendar, Unit: bucket.Day, Zone: time.UTC},
		OnExhausted: bucket.Hold,
	}})
	rules.Key.Rate.Burst = 1000
	r := newReplica(t, s, "api", Fresh, rules, &clock)
	r.left("k", 7)
	if err := r.Seed(ctx, map[string]int64{"minute": 0, "daily": 0}); err != nil { // nothing was lost: ignored
		t.Fatal(err)
	}
	if n := len(r.left("k", 64)); n != 23 {
		t.Fatalf("%d more left, want the 23 of 30", n)
	}
	if err := s.client().FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	clock += 3600_000_000
	if n := len(r.left("k", 5)); n != 0 {
		t.Fatalf("%d left after the loss", n)
	}
	clock += 3600_000_000 // the key's burst has drained
	unknown, err := r.Unknown(ctx)
	if err != nil || fmt.Sprint(unknown) != "[minute daily spend]" {
		t.Fatalf("unknown: %v %v", unknown, err)
	}
	if err := r.Seed(ctx, map[string]int64{"minute": 0, "daily": 30, "spend": 30}); err != nil {
		t.Fatal(err)
	}
	if n := len(r.left("k", 64)); n != 10 {
		t.Errorf("%d left, want the 10 that are left of the day's 40", n)
	}
	if err := r.Seed(ctx, map[string]int64{"daily": 0}); err != nil {
		t.Fatal(err)
	}
	if n := len(r.left("k", 64)); n != 0 {
		t.Error("seeding a second time opened the quota again")
	}
	if err := r.Seed(ctx, map[string]int64{"nobody": 1}); err == nil {
		t.Error("a name that no limit has was accepted")
	}
}
