package redisstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"weir/bucket"
)

// lined makes a replica ask for one slot. Its Line names so many tenants with so many waiting keys each.
func (r replica) lined(t testing.TB, key string, tenants, keys int) bucket.Answer {
	t.Helper()
	line := &bucket.Line{Replica: key}
	for i := range tenants {
		line.Tenants = append(line.Tenants, bucket.Waiting{Tenant: fmt.Sprint("tenant", i), Keys: keys})
	}
	got, err := r.Reserve(context.Background(), []bucket.Ask{{Key: key, Limits: r.rules.Key, Want: 1, Line: line, Tenant: "tenant0", Service: 50_000}})
	if err != nil {
		t.Fatal(err)
	}
	return got[0]
}

func turnRules() bucket.Rules {
	return bucket.Rules{
		Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1}},
		Shared: []bucket.Limit{{Name: "account", Rate: &bucket.Rate{Count: 20, Per: time.Second, Burst: 1}}},
	}
}

// TestTurnsAfterLoss empties Redis while two replicas take turns. When the limit grants slots again, the replicas must
// alternate again.
func TestTurnsAfterLoss(t *testing.T) {
	s, now := startServer(t), start
	one := newReplica(t, s, names(), Fresh, turnRules(), &now)
	other := replica{one.Store, t}
	calls := map[string][]bucket.Micros{}
	due := map[string]bucket.Micros{}
	play := func(until bucket.Micros) {
		for ; now < until; now += 1000 {
			for name, r := range map[string]replica{"one": one, "other": other} {
				if due[name] > now {
					continue
				}
				a := r.lined(t, name, 1, 1)
				for _, g := range a.Grants {
					calls[name] = append(calls[name], g.At)
				}
				due[name] = max(now+1000, a.Wait.Until)
			}
		}
	}
	play(start.Add(3 * time.Second))
	if err := s.client().FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	clear(calls)
	play(start.Add(9 * time.Second))
	if a, b := len(calls["one"]), len(calls["other"]); a < 40 || a > b+1 || b > a+1 {
		t.Errorf("after the loss one was granted %d slots, the other %d", a, b)
	}
}

// TestNoTurnsWhileNothingWaits checks that Redis holds no Lines while the limit is not used up.
func TestNoTurnsWhileNothingWaits(t *testing.T) {
	s, now := startServer(t), start
	r := newReplica(t, s, names(), Fresh, turnRules(), &now)
	lines := func() string {
		v, err := s.client().HGet(context.Background(), r.prefix+"state", "lines").Result()
		if err != nil && err.Error() != "redis: nil" {
			t.Fatal(err)
		}
		return v
	}
	if a := r.lined(t, "one", 1, 1); len(a.Grants) != 1 || lines() != "" {
		t.Errorf("%+v, and turns are kept: %q", a, lines())
	}
	if a := r.lined(t, "other", 1, 1); len(a.Grants) != 0 || lines() == "" {
		t.Errorf("%+v, and turns are kept: %q", a, lines())
	}
	now += 50_000
	if a := r.lined(t, "other", 1, 1); len(a.Grants) != 1 || lines() != "" {
		t.Errorf("%+v, and turns are kept: %q", a, lines())
	}
}

// BenchmarkTurns measures a round of one ask: alone, and while replicas wait that each name many tenants.
func BenchmarkTurns(b *testing.B) {
	s := startServer(b)
	for _, c := range []struct{ replicas, tenants int }{{0, 0}, {2, 1}, {20, 1}, {20, bucket.MostTenants}} {
		b.Run(fmt.Sprintf("%d replicas, %d tenants", c.replicas, c.tenants), func(b *testing.B) {
			now := start
			r := newReplica(b, s, names(), Fresh, turnRules(), &now)
			for i := range c.replicas {
				r.lined(b, fmt.Sprint("k", i), c.tenants, 3)
			}
			for i := range b.N {
				now += 10
				if c.replicas == 0 {
					r.left("k", 1)
					continue
				}
				r.lined(b, fmt.Sprint("k", i%c.replicas), c.tenants, 3)
			}
		})
	}
}
