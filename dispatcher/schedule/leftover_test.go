package schedule

import (
	"testing"
	"time"

	"weir/bucket"
)

// TestCallsLeftUnderWayCount checks that calls that the previous owner may still have under way count as the
// key's calls in flight, for as long as a call may take, even if the key has had no job for a while.
func TestCallsLeftUnderWayCount(t *testing.T) {
	start := bucket.Micros(1_700_000_000_000_000)
	now := start
	rules := bucket.Rules{Jitter: 5 * time.Millisecond, Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 100, Per: time.Second, Burst: 100}, Capacity: 1000, InFlight: 3}}
	store, err := bucket.NewMemory(rules, func() bucket.Micros { return now })
	if err != nil {
		t.Fatal(err)
	}
	s := New(&Policy{Rules: rules}, Pace{PrepareLead: 24 * time.Millisecond, ReserveAhead: LeastAhead, GrantTTL: 4 * time.Millisecond, MaxStaged: MaxStaged, MaxCalls: MaxCalls}, func(string) bucket.Micros { return 0 })
	p := &Partition{Open: true, Leftover: start.Add(10 * time.Second)}
	running := map[string]int{}
	run := func(until bucket.Micros) {
		for ; now < until; now = now.Add(time.Millisecond) {
			for {
				fx := s.Step(now)
				for _, j := range fx.Load {
					j.Policy = s.policy
					s.Loaded(j)
				}
				for _, j := range fx.Start {
					running[j.Queue.Key]++
					s.Sent(j, now)
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
	left := map[string]int32{"none": 0, "two": 2, "three": 3, "empty": 3}
	for key, n := range left {
		s.Queue(key, p).Orphaned = n
		if key != "empty" {
			for k := range 4 {
				s.Push(key, uint64(k+1), p)
			}
		}
		s.Touch(s.byKey[key])
	}
	run(start.Add(5 * time.Second))
	s.Allow(false) // the right to call is in doubt for a moment
	run(now.Add(10 * time.Millisecond))
	s.Allow(true)
	s.Push("empty", 9, p)
	if w := s.At(now).waits(s.byKey["empty"]); w.For != WaitInFlight || w.Until == nil {
		t.Errorf("a key whose calls may all be running waits for %+v", w)
	}
	run(p.Leftover)
	for key, n := range left {
		if most := int(3 - n); running[key] != most {
			t.Errorf("%s: %d calls were begun beside %d that were left, %d should", key, running[key], n, most)
		}
	}
	run(p.Leftover.Add(time.Second))
	for key, want := range map[string]int{"none": 3, "two": 3, "three": 3, "empty": 1} {
		if running[key] != want {
			t.Errorf("%s: %d calls run in the end, want %d", key, running[key], want)
		}
	}
}
