package schedule

import (
	"fmt"
	"testing"
	"time"

	"weir/bucket"
)

// TestHeldKeysStarveNobody checks that a key that is not held is called while 300 keys with ready jobs are held
// for an hour.
func TestHeldKeysStarveNobody(t *testing.T) {
	now := bucket.Micros(1_700_000_000_000_000)
	rules := bucket.Rules{Jitter: 5 * time.Millisecond, Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 100, Per: time.Second, Burst: 1}, Capacity: 1000, InFlight: 1}}
	store, err := bucket.NewMemory(rules, func() bucket.Micros { return now })
	if err != nil {
		t.Fatal(err)
	}
	s := New(&Policy{Rules: rules}, Pace{PrepareLead: 24 * time.Millisecond, ReserveAhead: LeastAhead, GrantTTL: 4 * time.Millisecond, MaxStaged: MaxStaged, MaxCalls: MaxCalls}, func(string) bucket.Micros { return 0 })
	p := &Partition{Open: true}
	started := map[string]int{}
	var running []*Job
	run := func(d time.Duration) {
		for end := now.Add(d); now < end; now = now.Add(time.Millisecond) {
			for {
				fx := s.Step(now)
				for _, j := range fx.Load {
					j.Policy = s.policy
					s.Loaded(j)
				}
				for _, j := range fx.Start {
					started[j.Queue.Key]++
					j.Calls++
					s.Sent(j, now)
					running = append(running, j)
				}
				if len(fx.Asks) > 0 {
					a, err := store.Reserve(t.Context(), fx.Asks)
					s.Answer(&fx, Reply{Sent: now, Came: now, Answers: a, Err: err})
				}
				if s.Next(now) > now {
					break
				}
			}
		}
	}
	for k := range 300 {
		s.Push(fmt.Sprint("held", k), uint64(2*k+1), p)
		s.Push(fmt.Sprint("held", k), uint64(2*k+2), p)
	}
	run(100 * time.Millisecond) // calls run; the next job of each key is ready
	for range 2 {
		for _, j := range running { // each key is told to come back in an hour
			s.Ended(j, nil, now)
			s.Holds.Hold(j.Queue, now.Add(time.Hour), "429")
			s.Rest(j, now.Add(time.Hour))
		}
		running = nil
		run(100 * time.Millisecond)
	}
	s.Push("other", 10001, p)
	run(30 * time.Second)
	if started["other"] == 0 {
		t.Error("a key that is not held was not called")
	}
}

// TestEdgeOfAPeriodIsNoHold checks that a budget that gives no slot around midnight and is not spent is not
// reported as spent.
func TestEdgeOfAPeriodIsNoHold(t *testing.T) {
	const now = bucket.Micros(1_700_000_000_000_000)
	rules := bucket.Rules{
		Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 50, Per: time.Second, Burst: 1}, Capacity: 100, InFlight: 4},
		Shared: []bucket.Limit{{Name: "spend", Budget: &bucket.Budget{
			Quota: bucket.Quota{Count: 33, Window: bucket.Calendar, Unit: bucket.Day, Zone: time.UTC}, OnExhausted: bucket.Hold,
		}}},
	}
	s := New(&Policy{Rules: rules}, Pace{PrepareLead: 24 * time.Millisecond, ReserveAhead: MostAhead, GrantTTL: 4 * time.Millisecond, MaxStaged: MaxStaged, MaxCalls: MaxCalls},
		func(string) bucket.Micros { return 0 })
	wait := bucket.Wait{Limit: "spend", Until: now.Add(2 * time.Second)} // twice the jitter
	if change, told := s.Holds.onBudget(&bucket.Answer{Wait: wait}, now); told {
		t.Errorf("told of a budget that is not spent: %+v", change)
	}
	wait.Exhausted = bucket.Hold
	if _, told := s.Holds.onBudget(&bucket.Answer{Wait: wait}, now); !told {
		t.Error("nothing is told of a budget that is spent")
	}
}
