package redisstore

import (
	"context"
	"slices"
	"testing"
	"time"

	"weir/bucket"
)

// memberRules returns the rules of one of two apis of an account: a rate and a quota that both apis share, and a rate
// of the api alone.
func memberRules(account, api string) bucket.Rules {
	rules := bucket.Rules{
		Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 100, Per: time.Minute, Burst: 5}}, Lease: 30 * time.Second,
		In: &bucket.Membership{Account: account, API: api, APIs: []string{"one", "two"}, Lease: 30 * time.Second},
		Shared: []bucket.Limit{
			{Name: "own", Rate: &bucket.Rate{Count: 100, Per: time.Minute, Burst: 10}},
			{Name: account + "/rate", Account: account, Rate: &bucket.Rate{Count: 1000, Per: time.Minute, Burst: 20}},
			{Name: account + "/daily", Account: account, Quota: &bucket.Quota{Count: 40, Window: bucket.Fixed, Per: 24 * time.Hour}},
		},
	}
	return rules
}

// newMember opens the limits of an api of an account. change sets further options.
func newMember(t testing.TB, s *server, account, api string, clock *bucket.Micros, change func(*Options)) replica {
	t.Helper()
	o := Options{Client: s.client(), API: api, Rules: memberRules(account, api), Epoch: Fresh, Uncalled: true, Sums: true}
	change(&o)
	st, err := New(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	st.now = func() bucket.Micros { return *clock }
	return replica{st, t}
}

func asNew(*Options) {}

// come makes apis join their account, as a process does when it opens their limits.
func come(all ...replica) {
	for _, r := range all {
		if _, err := r.Touch(context.Background()); err != nil {
			r.t.Fatal(err)
		}
	}
}

// take asks for one slot of each of the keys, and returns how many may leave now.
func (r replica) take(keys ...string) (n int) {
	for _, key := range keys {
		n += len(r.left(key, 1))
	}
	return n
}

var manyKeys = []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"}

// TestAccountAfterLoss empties Redis. It checks that two apis are then granted no call that would have been refused
// without the loss: the api that notices the loss, and the api that comes later and finds a new state.
func TestAccountAfterLoss(t *testing.T) {
	s, now, account := startServer(t), start, names()
	one, two := newMember(t, s, account, "one", &now, asNew), newMember(t, s, account, "two", &now, asNew)
	come(one, two)
	if n := one.take(manyKeys...) + two.take(manyKeys...); n != 20 {
		t.Fatalf("%d slots of a burst of 20, and 10 of each api's own", n)
	}
	if err := s.client().FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	come(one, two)
	if n := one.take(manyKeys...) + two.take(manyKeys...); n != 0 {
		t.Errorf("%d slots just after the loss", n)
	}
	unknown, err := two.Unknown(context.Background())
	if err != nil || !slices.Contains(unknown, account+"/daily") {
		t.Errorf("what is unknown after the loss: %v, %v", unknown, err)
	}
	if err := one.Seed(context.Background(), map[string]int64{account + "/daily": 20}); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Hour)
	if n := one.take(manyKeys...) + two.take(manyKeys...); n != 20 {
		t.Errorf("an hour later %d slots of a burst of 20 and a quota of which 20 are left", n)
	}
	now = now.Add(time.Hour)
	if n := one.take(manyKeys...) + two.take(manyKeys...); n != 0 {
		t.Errorf("%d slots beyond the quota of both", n)
	}
}

// TestAccountOfAStranger brings an api that was called before to an account. The account has not counted these calls,
// so its limits count as used up until the ledger is added up. The other api's own limits and keys stay as they were.
func TestAccountOfAStranger(t *testing.T) {
	s, now, account := startServer(t), start, names()
	one := newMember(t, s, account, "one", &now, func(o *Options) { o.Rules.In.APIs = []string{"one"} })
	one.take("a", "b")
	two := newMember(t, s, account, "two", &now, func(o *Options) { o.Epoch, o.Uncalled, o.Stranger = "", false, true })
	if _, err := two.Touch(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := one.take("c") + two.take("c"); n != 0 {
		t.Errorf("%d slots before what the newcomer was called for is known", n)
	}
	if unknown, err := one.Unknown(context.Background()); err != nil || len(unknown) != 1 {
		t.Errorf("what is unknown: %v, %v", unknown, err)
	}
	epoch := two.Epoch()
	if _, err := two.Touch(context.Background()); err != nil || two.Epoch() != epoch {
		t.Errorf("the state is lost a second time: %v", err)
	}
}

// TestStrangerLeavesOthersKeysAlone brings an api to an account whose other api has a slow key. The key continues as
// before: the unknown calls of the new api concern no keys and no own limits of the other api.
func TestStrangerLeavesOthersKeysAlone(t *testing.T) {
	s, now, account := startServer(t), start, names()
	one := newMember(t, s, account, "one", &now, func(o *Options) { o.Rules.In.APIs = []string{"one"} })
	slow := bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: 24 * time.Hour, Burst: 1}}
	ask := func(key string) bucket.Answer {
		t.Helper()
		got, err := one.Reserve(context.Background(), []bucket.Ask{{Key: key, Limits: slow, Want: 1}})
		if err != nil {
			t.Fatal(err)
		}
		return got[0]
	}
	ask("called")
	two := newMember(t, s, account, "two", &now, func(o *Options) { o.Epoch, o.Uncalled, o.Stranger = "", false, true })
	if _, err := two.Touch(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := two.Seed(context.Background(), map[string]int64{account + "/daily": 1}); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Hour)
	if a := ask("new"); len(a.Grants) != 1 {
		t.Errorf("a key that was never called waits: %+v", a.Wait)
	}
	if a := ask("called"); len(a.Grants) != 0 {
		t.Error("a key that was called an hour ago was called again")
	}
}

// TestAccountPermitsAfterLoss checks how long permits stay taken after a loss. The account's permits stay taken for the
// longest call of any of its apis, and those of an api's own limits for the longest call of that api.
func TestAccountPermitsAfterLoss(t *testing.T) {
	s, now, account := startServer(t), start, names()
	permits := func(o *Options) {
		o.Rules.Lease, o.Rules.In.Lease = 10*time.Second, 2*time.Minute
		o.Rules.Shared = []bucket.Limit{{Name: account + "/running", Account: account, InFlight: 3}}
	}
	one := newMember(t, s, account, "one", &now, permits)
	two := newMember(t, s, account, "two", &now, func(o *Options) {
		permits(o)
		o.Rules.Lease, o.Rules.Shared[0] = 2*time.Minute, bucket.Limit{Name: account + "/running", Account: account, InFlight: 3}
	})
	come(one, two)
	if n := len(two.left("k", 3)); n != 3 {
		t.Fatalf("%d calls of 3", n)
	}
	if err := s.client().FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	come(one, two)
	for now < start.Add(2*time.Minute) {
		if n := len(one.left("k", 1)); n != 0 {
			t.Fatalf("%s after the loss a call was granted beside 3 that may run", start.Until(now))
		}
		now = now.Add(10 * time.Second)
	}
	now = now.Add(5 * time.Second)
	if n := len(one.left("k", 3)); n != 3 {
		t.Errorf("after the longest call %d of 3 were granted", n)
	}
}

// TestOlderCopyLosesEachAPI checks that if one api of an account finds an older copy of the state, the own limits and
// keys of the other api count as lost too.
func TestOlderCopyLosesEachAPI(t *testing.T) {
	ctx := context.Background()
	s, now, account := startServer(t), start, names()
	hourly := func(o *Options) {
		o.Rules.Shared = []bucket.Limit{o.Rules.Shared[2], {Name: "own", Rate: &bucket.Rate{Count: 10, Per: time.Hour, Burst: 10}}}
	}
	one, two := newMember(t, s, account, "one", &now, hourly), newMember(t, s, account, "two", &now, hourly)
	come(one, two)
	one.take("a")
	two.take("a")
	if err := s.client().Save(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	if n := two.take(manyKeys...); n != 9 {
		t.Fatalf("%d of the 9 that are left of its own limit", n)
	}
	one.take("b", "c")
	s.kill()
	s.start()
	for _, r := range []replica{one, two} {
		r.client = s.client()
	}
	if n := one.take("d"); n != 0 {
		t.Errorf("%d calls of the api that found the older copy", n)
	}
	if err := one.Seed(ctx, map[string]int64{account + "/daily": 13}); err != nil {
		t.Fatal(err)
	}
	now = now.Add(10 * time.Second)
	if n := two.take(manyKeys...); n != 0 {
		t.Fatalf("the other api was granted %d calls of its own limit, which was used up", n)
	}
	now = now.Add(12 * time.Hour)
	if n := two.take(manyKeys...); n != 10 {
		t.Fatalf("twelve hours later the other api was granted %d of 10", n)
	}
}

// TestAccountIsOneSlotOfACluster checks that all Redis keys that one reservation touches have one hash tag.
func TestAccountIsOneSlotOfACluster(t *testing.T) {
	s, now, account := startServer(t), start, names()
	one := newMember(t, s, account, "one", &now, func(o *Options) { o.Rules.In.APIs = []string{"one"} })
	one.take("a")
	keys, err := s.client().Keys(context.Background(), "*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatal(keys, err)
	}
	for _, key := range keys {
		if want := "{weir:account/" + account + "}:"; len(key) < len(want) || key[:len(want)] != want {
			t.Errorf("the key %s has another tag than %s", key, want)
		}
	}
	if err := one.Apply(bucket.Rules{Key: memberRules(account, "one").Key}); err == nil {
		t.Error("rules of no account are counted in the account's state")
	}
}
