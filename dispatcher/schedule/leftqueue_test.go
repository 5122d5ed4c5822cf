package schedule

import (
	"testing"
	"time"

	"weir/bucket"
)

// TestLineThatIsGoneIsTouched checks that a queue that was dropped without jobs may still be touched, for
// example because a suspect's call has ended. It takes no turn then, whatever holds the api.
func TestLineThatIsGoneIsTouched(t *testing.T) {
	rules := bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1}, InFlight: 1, Capacity: 10}}
	s := New(&Policy{Rules: rules}, Pace{MaxStaged: MaxStaged, MaxCalls: MaxCalls}, func(string) bucket.Micros { return 0 })
	now, p := bucket.Micros(1_000_000_000), &Partition{Open: true}
	s.policy = &Policy{Rules: rules}
	q := s.Push("k", 1, p)
	job := s.Extract(q, 1)
	job.Phase = settling
	s.Finished(job)
	for range 10 {
		now = now.Add(time.Hour)
		s.Step(now)
	}
	if s.byKey["k"] != nil || q.seat.tenant != nil {
		t.Fatal("an hour later the line without jobs is still there")
	}
	s.gate.opens = now.Add(time.Hour)
	s.Touch(q)
	s.Step(now)
	if s.turns.waiting() != 0 {
		t.Error("a line without jobs waits for its turn")
	}
}
