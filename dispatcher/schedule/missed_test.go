package schedule

import (
	"testing"
	"time"

	"weir/bucket"
)

// TestMissedBurstIsCalled checks that a key's slow rate gets back all slots of a burst, granted one by one as under a
// shared limit, if a busy machine misses the first of them. All calls are then made at once.
func TestMissedBurstIsCalled(t *testing.T) {
	const burst = 10
	start := bucket.Micros(1_700_000_000_000_000)
	now := start
	rules := bucket.Rules{
		Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: burst, Per: time.Hour, Burst: burst}, Capacity: 100, InFlight: burst},
		Shared: []bucket.Limit{{Name: "account", Rate: &bucket.Rate{Count: 1000, Per: time.Second, Burst: 1000}}},
		Jitter: 5 * time.Millisecond,
	}
	store, err := bucket.NewMemory(rules, func() bucket.Micros { return now })
	if err != nil {
		t.Fatal(err)
	}
	pace := Pace{PrepareLead: LeastLead, ReserveAhead: LeastAhead, GrantTTL: 4 * time.Millisecond, MaxStaged: MaxStaged, MaxCalls: MaxCalls}
	s := New(&Policy{Rules: rules}, pace, func(string) bucket.Micros { return 0 })
	p := &Partition{Open: true}
	for seq := range uint64(burst) {
		s.Push("k", seq+1, p)
	}
	var stuck *Job
	asks, calls := 0, 0
	for now < start.Add(time.Second) {
		fx := s.Step(now)
		for _, j := range fx.Load {
			j.Policy, j.Costs = s.policy, []int64{1}
			s.Loaded(j)
		}
		for _, j := range fx.Start {
			if stuck == nil {
				stuck = j
				continue
			}
			calls++
			s.Sent(j, now)
		}
		if err := store.Settle(t.Context(), fx.Unused); err != nil {
			t.Fatal(err)
		}
		if len(fx.Asks) > 0 {
			a, err := store.Reserve(t.Context(), fx.Asks)
			s.Answer(&fx, Reply{Sent: now, Came: now, Answers: a, Err: err})
			if asks += len(fx.Asks); asks == burst {
				now = now.Add(50 * time.Millisecond)
				s.Unstart(stuck)
			}
			continue
		}
		if s.Next(now) > now {
			now = now.Add(time.Millisecond)
		}
	}
	if calls != burst || s.Forfeited != burst {
		t.Errorf("%d of %d calls were made within a second, and %d slots were missed", calls, burst, s.Forfeited)
	}
}
