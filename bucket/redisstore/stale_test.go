package redisstore

import (
	"context"
	"testing"
	"time"

	"weir/bucket"
)

// TestPeriodsOfAnotherTime checks a replica whose clock is wrong by days, so that TIME is in none of the periods that
// it offers. Redis says so. The replica then offers periods around TIME, and counts in the same month as other
// replicas.
func TestPeriodsOfAnotherTime(t *testing.T) {
	s := startServer(t)
	rules := bucket.Rules{
		Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 100}},
		Shared: []bucket.Limit{{Name: "monthly", Quota: &bucket.Quota{Count: 5, Window: bucket.Calendar, Unit: bucket.Month, Zone: time.UTC}}},
	}
	given := 0
	for _, off := range []time.Duration{0, -72 * time.Hour, 72 * time.Hour, -400 * 24 * time.Hour} {
		st, err := New(context.Background(), Options{Client: s.client(), API: "api", Rules: rules, Epoch: Fresh})
		if err != nil {
			t.Fatal(err)
		}
		st.offset.Store(off.Microseconds())
		got, err := st.Reserve(context.Background(), []bucket.Ask{{Key: "k", Limits: rules.Key, Want: 2}})
		if err != nil {
			t.Fatalf("off by %s: %v", off, err)
		}
		given += len(got[0].Grants)
		if now := got[0].Now.Time(); time.Since(now).Abs() > time.Minute {
			t.Errorf("off by %s: the store's time is %s", off, now)
		}
	}
	if given != 5 {
		t.Errorf("%d of five a month were given to replicas with different calendars", given)
	}
}
