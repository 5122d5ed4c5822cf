package redisstore

import (
	"math/rand/v2"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/storetest"
)

// turned is a store of a server whose clock the test sets.
type turned struct {
	t     *testing.T
	rules bucket.Rules
	wall  bucket.Micros
	store *Store
}

func layTurned(t *testing.T, s *server, rules bucket.Rules, wall time.Time) *turned {
	rules.Key = bucket.KeyLimits{Rate: bucket.Rate{Count: 1_000_000, Per: time.Second, Burst: 2_000_000}}
	c := &turned{t: t, rules: rules, wall: bucket.MicrosOf(wall)}
	store, err := New(t.Context(), Options{Client: s.client(), API: names(), Rules: rules, Epoch: Fresh})
	if err != nil {
		t.Fatal(err)
	}
	store.now = func() bucket.Micros { return c.wall }
	c.store = store
	return c
}

// call asks for one call now, and returns how long to wait if none is granted.
func (c *turned) call() (ok bool, wait time.Duration) {
	got, err := c.store.Reserve(c.t.Context(), []bucket.Ask{{Key: "k", Limits: c.rules.Key, Want: 1}})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, g := range got[0].Grants {
		if err := c.store.Settle(c.t.Context(), []bucket.Use{{Key: "k", Grant: g}}); err != nil {
			c.t.Fatal(err)
		}
	}
	return len(got[0].Grants) == 1, got[0].Now.Until(got[0].Wait.Until)
}

// TestClockOfRedisSetBack checks that after TIME was set back, what was counted before counts as of that moment. No
// call waits for longer than a period, or longer than until the end of the period that was used up.
func TestClockOfRedisSetBack(t *testing.T) {
	s := startServer(t)
	noon := time.Date(2027, 3, 31, 12, 0, 0, 0, time.UTC)
	day := bucket.Quota{Count: 3, Window: bucket.Calendar, Unit: bucket.Day, Zone: time.UTC}
	for name, c := range map[string]struct {
		limit bucket.Limit
		calls int
		wait  time.Duration
	}{
		"rate":    {bucket.Limit{Name: "x", Rate: &bucket.Rate{Count: 1, Per: time.Minute, Burst: 1}}, 1, time.Minute},
		"sliding": {bucket.Limit{Name: "x", Quota: &bucket.Quota{Count: 3, Window: bucket.Sliding, Per: time.Hour}}, 3, time.Hour},
		"fixed":   {bucket.Limit{Name: "x", Quota: &bucket.Quota{Count: 3, Window: bucket.Fixed, Per: time.Hour}}, 3, time.Hour},
		"day":     {bucket.Limit{Name: "x", Quota: &day}, 3, 24 * time.Hour},
		"budget":  {bucket.Limit{Name: "x", Budget: &bucket.Budget{Quota: day, OnExhausted: bucket.Hold}}, 3, 24 * time.Hour},
	} {
		for _, back := range []time.Duration{26 * time.Hour, 30 * 24 * time.Hour} {
			m := layTurned(t, s, bucket.Rules{Shared: []bucket.Limit{c.limit}}, noon)
			for range c.calls {
				if ok, _ := m.call(); !ok {
					t.Fatalf("%s: a first call waits", name)
				}
			}
			m.wall = m.wall.Add(-back)
			ok, wait := m.call()
			most := c.wait
			if most == 24*time.Hour && back == 26*time.Hour {
				most = 38 * time.Hour // until the end of the day that was used up
			}
			if ok || wait > most {
				t.Errorf("%s, %s back: called %t, waits %s, want %s at most", name, back, ok, wait, most)
			}
			if m.wall = m.wall.Add(wait - time.Second); wait > time.Second {
				if ok, _ := m.call(); ok {
					t.Errorf("%s, %s back: called before its time", name, back)
				}
			}
			m.wall = m.wall.Add(time.Second)
			if ok, wait := m.call(); !ok {
				t.Errorf("%s, %s back: waits %s more than it said", name, back, wait)
			}
			levels, err := m.store.Levels(t.Context())
			if err != nil || name != "rate" && levels[0].Used == 0 {
				t.Errorf("%s, %s back: %+v, %v", name, back, levels, err)
			}
		}
	}
}

// TestNoDayTwiceInRedis checks that no day is granted twice while TIME is set back and forth by hours. No call waits
// for longer than the day that was used up and the day before.
func TestNoDayTwiceInRedis(t *testing.T) {
	s := startServer(t)
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 4))
		m := layTurned(t, s, bucket.Rules{Shared: []bucket.Limit{
			{Name: "day", Quota: &bucket.Quota{Count: 5, Window: bucket.Calendar, Unit: bucket.Day, Zone: time.UTC}},
		}}, time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC))
		days, off := map[string]int{}, time.Duration(0)
		for range 60 {
			m.wall = m.wall.Add(time.Duration(random.Int64N(int64(8 * time.Hour))))
			if by := time.Duration(random.Int64N(int64(22*time.Hour))) - 11*time.Hour; random.IntN(2) == 0 {
				m.wall, off = m.wall.Add(by-off), by
			}
			for range random.IntN(8) {
				ok, wait := m.call()
				if ok {
					days[m.wall.Time().UTC().Format(time.DateOnly)]++
				}
				if wait > 48*time.Hour {
					t.Errorf("seed %d: waits %s", seed, wait)
				}
			}
		}
		for day, n := range days {
			if n > 5 {
				t.Errorf("seed %d: %d calls on %s", seed, n, day)
			}
		}
		if len(days) < 5 {
			t.Errorf("seed %d: calls on %d days", seed, len(days))
		}
	}
}

// TestTimeCatchesUp checks that slots follow TIME again once TIME is right, and that no slot lies in the future then.
func TestTimeCatchesUp(t *testing.T) {
	m := layTurned(t, startServer(t), bucket.Rules{}, storetest.Start.Time())
	m.call()
	for i, by := range []time.Duration{-time.Hour, time.Minute, time.Hour} {
		m.wall = m.wall.Add(by)
		got, err := m.store.Reserve(t.Context(), []bucket.Ask{{Key: "k", Limits: m.rules.Key, Want: 1}})
		if err != nil {
			t.Fatal(err)
		}
		want := []bucket.Micros{storetest.Start, storetest.Start.Add(time.Minute), m.wall}[i]
		if got[0].Now != want || len(got[0].Grants) != 1 {
			t.Errorf("after %s slots go by %d µs, want %d; %+v", by, got[0].Now-storetest.Start, want-storetest.Start, got[0])
		}
	}
}

// TestTimeSetRightAgain checks that what was granted while TIME was behind also counts in the day that was counted
// before.
func TestTimeSetRightAgain(t *testing.T) {
	noon := time.Date(2027, 3, 31, 12, 0, 0, 0, time.UTC)
	m := layTurned(t, startServer(t), bucket.Rules{Shared: []bucket.Limit{
		{Name: "day", Quota: &bucket.Quota{Count: 3, Window: bucket.Calendar, Unit: bucket.Day, Zone: time.UTC}},
	}}, noon)
	m.call()
	m.call()
	m.wall = m.wall.Add(-30 * 24 * time.Hour)
	for i, want := range []bool{true, false} {
		if ok, _ := m.call(); ok != want {
			t.Errorf("behind, call %d: %t", i, ok)
		}
	}
	m.wall = bucket.MicrosOf(noon)
	if ok, wait := m.call(); ok || wait != 12*time.Hour {
		t.Errorf("called %t, waits %s, want until midnight", ok, wait)
	}
}
