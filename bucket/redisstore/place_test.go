package redisstore

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"weir/bucket"
)

// alone returns the rules of an api without an account.
func alone(version int64) bucket.Rules {
	rules := memberRules("", "one")
	rules.In, rules.Shared, rules.Version = nil, rules.Shared[:1], version
	return rules
}

// together returns memberRules of a version, with the named apis in the account.
func together(account, api string, version int64, apis ...string) bucket.Rules {
	rules := memberRules(account, api)
	rules.In.APIs, rules.Version = apis, version
	return rules
}

// refused checks that no slot is granted, and that the error is want.
func (r replica) refused(want error) {
	r.t.Helper()
	ctx := context.Background()
	got, err := r.Reserve(ctx, []bucket.Ask{{Key: "refused", Limits: r.rules.Key, Want: 1}})
	if !errors.Is(err, want) {
		r.t.Errorf("an ask: %+v, %v, want %v", got, err, want)
	}
	if err := r.Settle(ctx, nil); !errors.Is(err, want) {
		r.t.Errorf("a request without an ask: %v, want %v", err, want)
	}
}

// TestMovedAPIIsCalledNowhereElse moves an api to an account. The api's former state then grants nothing to a replica
// that has not followed the change. By a later change the api comes back, and begins a new state there.
func TestMovedAPIIsCalledNowhereElse(t *testing.T) {
	ctx := context.Background()
	s, now, account, api := startServer(t), start, names(), names()
	first, late := newReplica(t, s, api, Fresh, alone(1), &now), newReplica(t, s, api, Fresh, alone(1), &now)
	running := late.left("k", 1)
	if len(running) != 1 || first.take("a") != 1 {
		t.Fatal("the api is not called before the change")
	}
	if err := Move(ctx, s.client(), api, "", first.Epoch(), 2); err != nil {
		t.Fatal(err)
	}
	rules := together(account, api, 2, api)
	in, err := New(ctx, Options{Client: s.client(), API: api, Rules: rules, Epoch: Fresh, Stranger: true, Sums: true})
	if err != nil {
		t.Fatal(err)
	}
	in.now = late.now
	if _, err := in.Touch(ctx); err != nil {
		t.Fatal(err)
	}
	late.refused(ErrBehind)
	if err := late.Settle(ctx, []bucket.Use{{Key: "k", Grant: running[0]}}); err != nil {
		t.Errorf("a call that was made before the change cannot end: %v", err)
	}
	never := newReplica(t, s, api, Fresh, alone(1), &now)
	never.refused(ErrBehind)

	if err := Move(ctx, s.client(), api, account, "", 3); err != nil {
		t.Fatal(err)
	}
	replica{in, t}.refused(ErrBehind)
	back := newReplica(t, s, api, late.Epoch(), alone(3), &now)
	if n := back.take("b"); n != 0 {
		t.Errorf("%d calls at once after the api came back, although it was called elsewhere", n)
	}
	now = now.Add(time.Hour)
	if n := back.take("b"); n != 1 {
		t.Error("after the api came back it is never called")
	}
}

// TestMoveOfAnUncalledAPI moves an api that has never had a state of its own.
func TestMoveOfAnUncalledAPI(t *testing.T) {
	s, now, api := startServer(t), start, names()
	if err := Move(context.Background(), s.client(), api, "", Fresh, 2); err != nil {
		t.Fatal(err)
	}
	newReplica(t, s, api, Fresh, alone(1), &now).refused(ErrBehind)
	back := newReplica(t, s, api, Fresh, alone(3), &now)
	if _, err := back.Touch(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestOldMoveIsRefused checks that a replica that has not followed the last change cannot take an api out of an account
// that follows the last change.
func TestOldMoveIsRefused(t *testing.T) {
	s, now, account := startServer(t), start, names()
	one := newMember(t, s, account, "one", &now, func(o *Options) { o.Rules = together(account, "one", 5, "one") })
	one.take("a")
	if err := Move(context.Background(), s.client(), "one", account, "", 4); !errors.Is(err, ErrBehind) {
		t.Fatal(err)
	}
	if one.take("b") != 1 {
		t.Error("the api was taken out of its account")
	}
}

// TestOlderRulesAreRefused changes an account's limits. A replica that has not followed the change is granted nothing,
// and takes nothing from the replicas that have followed it. Its calls can still end. Rules that do not differ in the
// account are accepted whatever their version.
func TestOlderRulesAreRefused(t *testing.T) {
	ctx := context.Background()
	s, now, account := startServer(t), start, names()
	version := func(n, most int64) func(*Options) {
		return func(o *Options) {
			o.Rules = together(account, o.API, n, "one", "two")
			o.Rules.Shared[2].Quota = &bucket.Quota{Count: most, Window: bucket.Fixed, Per: 24 * time.Hour}
		}
	}
	one := newMember(t, s, account, "one", &now, version(1, 10))
	two := newMember(t, s, account, "two", &now, version(1, 10))
	come(one, two)
	running := two.left("k", 4)
	if err := one.Apply(newMember(t, s, account, "one", &now, version(3, 6)).rules); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Touch(ctx); err != nil {
		t.Fatal(err)
	}
	two.refused(ErrBehind)
	middle := version(2, 10)
	skipped := newMember(t, s, account, "two", &now, func(o *Options) { middle(o); o.Uncalled = false })
	skipped.refused(ErrBehind)
	if n := one.take(manyKeys...); n != 2 {
		t.Errorf("%d more of a quota of 6, of which 4 are used", n)
	}
	if err := two.Settle(ctx, []bucket.Use{{Key: "k", Grant: running[0], Returned: true}}); err != nil {
		t.Fatal(err)
	}
	if n := one.take(manyKeys...); n != 1 {
		t.Errorf("one call was not made, and %d more were granted", n)
	}
	same := newMember(t, s, account, "two", &now, version(2, 6))
	if _, err := same.Touch(ctx); err != nil {
		t.Errorf("rules that do not differ are refused: %v", err)
	}
}

// TestAccountAwaitsItsAPIs checks that an account grants nothing, not even to an api that was there before, until each
// of its apis has come.
func TestAccountAwaitsItsAPIs(t *testing.T) {
	ctx := context.Background()
	s, now, account := startServer(t), start, names()
	one := newMember(t, s, account, "one", &now, func(o *Options) { o.Rules = together(account, "one", 1, "one") })
	if one.take("a") != 1 {
		t.Fatal("an account of one api grants nothing")
	}
	if err := one.Apply(together(account, "one", 2, "one", "two")); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Touch(ctx); err != nil {
		t.Fatal(err)
	}
	one.refused(ErrAwaits)
	comes := func(o *Options) { o.Rules = together(account, "two", 2, "one", "two") }
	two := newMember(t, s, account, "two", &now, comes)
	if _, err := two.Touch(ctx); err != nil {
		t.Fatal(err)
	}
	if n := one.take("b"); n != 1 {
		t.Error("all apis have come, and nothing is granted")
	}
	if err := Move(ctx, s.client(), "two", account, "", 3); err != nil {
		t.Fatal(err)
	}
	one.refused(ErrAwaits)
}

// TestFirstPermitsCountRunningCalls checks that a first limit of calls in flight counts the calls that run already,
// both for an api alone and for an account.
func TestFirstPermitsCountRunningCalls(t *testing.T) {
	for _, of := range []string{"", "account"} {
		s, now, account := startServer(t), start, names()
		rules := together(account, "one", 1, "one")
		one := newMember(t, s, account, "one", &now, func(o *Options) { o.Rules = rules })
		if of == "" {
			rules.Shared = rules.Shared[1:]
		} else {
			rules.Shared = rules.Shared[:1]
		}
		if err := one.Apply(rules); err != nil {
			t.Fatal(err)
		}
		if n := len(one.left("k", 2)); n != 2 {
			t.Fatalf("%d calls run", n)
		}
		limit := bucket.Limit{Name: "running", InFlight: 3}
		if of != "" {
			limit.Name, limit.Account = account+"/running", account
		}
		rules.Shared, rules.Version = append(slices.Clone(rules.Shared), limit), 2
		if err := one.Apply(rules); err != nil {
			t.Fatal(err)
		}
		if n := len(one.left("k", 2)); n != 1 {
			t.Errorf("%q: beside 2 running calls %d were granted of 3", of, n)
		}
	}
}
