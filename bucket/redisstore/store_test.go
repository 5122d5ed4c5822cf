package redisstore

import (
	"context"
	"testing"

	"weir/bucket"
	"weir/bucket/storetest"
)

// opener opens stores of one server that read a test's clock: the script takes the time as an argument instead of
// asking TIME. Only so can hours be played in milliseconds. Everything else, also the state's own clock, is as in
// production.
func opener(s *server) storetest.Open {
	client := s.client()
	return func(t testing.TB, rules bucket.Rules, clock *storetest.Clock) storetest.Store {
		st, err := New(context.Background(), Options{Client: client, API: names(), Rules: rules, Epoch: Fresh})
		if err != nil {
			t.Fatal(err)
		}
		st.now = clock.Now
		st.horizon.Store(0) // as in memory, whose callers are all here
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
