package schedule

import (
	"testing"
	"time"

	"weir/bucket"
)

// TestNobodyWaitsForWhoWaitsForRoom checks that a job that waits for memory gets it in the end, although jobs behind it
// hold memory. If it is a retry, the jobs behind it are called before it. If it was never called, they must not be
// called before it, and give their memory back.
func TestNobodyWaitsForWhoWaitsForRoom(t *testing.T) {
	for _, calls := range []int{0, 1} {
		limits := fast(8)
		limits.Rate.Burst = 8
		d := newDesk(limits)
		d.add("k", "k", "k")
		q := d.byKey["k"]
		first, others := d.Extract(q, 1), []*Job{d.Extract(q, 2), d.Extract(q, 3)}
		first.Calls, first.Phase, first.Cramped = calls, staging, true
		for _, j := range others {
			j.Phase, j.Policy = ready, d.policy
		}
		d.Pipe.staged += 3
		fx := d.Step(d.now)
		switch {
		case calls > 0 && (len(fx.Asks) != 1 || len(fx.asked[0]) != 2 || len(fx.Stale) != 0):
			t.Errorf("behind a retry: %d asks, and %d jobs give their room back", len(fx.Asks), len(fx.Stale))
		case calls == 0 && (len(fx.Asks) != 0 || len(fx.Stale) != 2):
			t.Errorf("behind a first call: %d asks, and %d jobs give their room back", len(fx.Asks), len(fx.Stale))
		}
	}
}

// TestEarlyRetryIsAskedForInTime checks that a retry that became ready before its time is asked for when its time has
// come, while a low job of its key waits for a turn. That turn may never come, because the schedule may withdraw the
// low job.
func TestEarlyRetryIsAskedForInTime(t *testing.T) {
	const start = bucket.Micros(1_700_000_000_000_000)
	calls := bucket.Rate{Count: 1000, Per: time.Second, Burst: 8}
	s := New(&Policy{Rules: bucket.Rules{
		Key:    bucket.KeyLimits{Rate: calls, Capacity: 100, InFlight: 4},
		Shared: []bucket.Limit{{Name: "account", Rate: &calls}},
	}}, Pace{
		PrepareLead: 24 * time.Millisecond, ReserveAhead: MostAhead, GrantTTL: 4 * time.Millisecond,
		MaxStaged: MaxStaged, MaxCalls: MaxCalls,
	}, func(string) bucket.Micros { return 0 })
	s.gate.shut("account", start.Add(20*time.Millisecond))
	part, retryAt := &Partition{Open: true}, start.Add(10*time.Millisecond)
	s.push("k", 1, part, bucket.Normal, 0)
	s.push("k", 2, part, bucket.Low, 0)
	for range 3 {
		for _, j := range s.Step(start).Load {
			if j.Policy, j.Costs = s.policy, []int64{1}; j.Seq == 1 {
				j.Calls, j.NotBefore = 1, retryAt
			}
			s.Loaded(j)
		}
	}
	q := s.Find("k")
	if n := q.Jobs.count(ready); n != 2 || !q.seats.State(bucket.Low).Blocked {
		t.Fatalf("%d jobs are ready, and the low one waits for a turn: %v", n, q.seats.State(bucket.Low).Blocked)
	}
	if next := s.Next(start); next != retryAt {
		t.Errorf("the schedule looks again after %s, want %s", start.Until(next), start.Until(retryAt))
	}
}

// TestQueueThatCannotAskYetTakesNoTurn checks that a queue takes no turn at a shared limit before it may ask. Otherwise
// it would pass the turn on, get the turn to make its low job ready, wait for the next turn because of that, and so on
// without end.
func TestQueueThatCannotAskYetTakesNoTurn(t *testing.T) {
	const start = bucket.Micros(1_700_000_000_000_000)
	s := New(&Policy{Rules: bucket.Rules{
		Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 200, Per: time.Second, Burst: 1}, Capacity: 100, InFlight: 4},
		Shared: []bucket.Limit{{Name: "account", Rate: &bucket.Rate{Count: 1000, Per: time.Second, Burst: 8}}},
	}}, Pace{
		PrepareLead: 24 * time.Millisecond, ReserveAhead: LeastAhead, GrantTTL: 4 * time.Millisecond,
		MaxStaged: 2, MaxCalls: MaxCalls, Replica: "one of two", // so each replica makes few jobs ready
	}, func(string) bucket.Micros { return 0 })
	part, askAt := &Partition{Open: true}, start.Add(time.Millisecond)
	for i, p := range bucket.Priorities {
		s.push("k", uint64(i+1), part, p, 0)
	}
	q := s.Find("k")
	q.refused("account", askAt)
	steps := func() {
		for range 10 {
			for _, j := range s.Step(start).Load {
				j.Policy, j.Costs = s.policy, []int64{1}
				s.Loaded(j)
			}
		}
	}
	steps()
	if n := q.Jobs.count(ready); n != 2 {
		t.Fatalf("%d jobs are ready, want the high and the normal one", n)
	}
	s.push("other", 4, part, bucket.Normal, 0) // waits for its turn to make its job ready
	s.Holds.governor.ramp = slowStart          // one queue has the turn in a step
	s.turns.Wait(q, bucket.High)
	s.turns.Wait(q, bucket.Normal)
	steps()
	if next := s.Next(start); next != askAt {
		t.Errorf("the schedule looks again after %s, want %s", start.Until(next), start.Until(askAt))
	}
}
