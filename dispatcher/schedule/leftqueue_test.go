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
	if s.byKey["k"] != nil || q.seats.IsJoined(bucket.Normal) {
		t.Fatal("an hour later the line without jobs is still there")
	}
	s.gate.opens = now.Add(time.Hour)
	s.Touch(q)
	s.Step(now)
	if s.turns.Waiting() != 0 {
		t.Error("a line without jobs waits for its turn")
	}
}

// TestLostQueueWaitsForNoTurn checks that a queue waits for no turn if its partition is lost while a slot is asked for,
// and the slot is then refused or the store does not answer. The schedule must not tell other processes that the
// queue's key waits.
func TestLostQueueWaitsForNoTurn(t *testing.T) {
	rules := bucket.Rules{
		Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1}, InFlight: 1, Capacity: 10},
		Shared: []bucket.Limit{{Name: "account", Rate: &bucket.Rate{Count: 1, Per: time.Second, Burst: 1}}},
	}
	now := bucket.Micros(1_000_000_000)
	for name, reply := range map[string]Reply{
		"refused":    {Answers: []bucket.Answer{{Now: now, Wait: bucket.Wait{Limit: "account", Until: now.Add(100 * time.Millisecond)}}}},
		"unanswered": {Err: errLost},
	} {
		t.Run(name, func(t *testing.T) {
			pace := Pace{MaxStaged: MaxStaged, MaxCalls: MaxCalls, PrepareLead: LeastLead, ReserveAhead: LeastAhead, Replica: "r", Clock: OtherClock}
			s, p := New(&Policy{Rules: rules}, pace, func(string) bucket.Micros { return 0 }), &Partition{Open: true}
			q := s.Push("k", 1, p)
			fx := s.Step(now)
			fx.Load[0].Policy, fx.Load[0].Costs = s.policy, []int64{1}
			s.Loaded(fx.Load[0])
			if fx = s.Step(now); len(fx.Asks) != 1 {
				t.Fatalf("%+v", fx)
			}
			p.Open = false
			var lost Effects
			s.Unwind([]*KeyQueue{q}, now, &lost)
			s.Forget(q)
			s.ForgetWaiting(p)
			reply.Sent, reply.Came = now, now
			s.Answer(&fx, reply)
			for range 5 {
				s.Step(now)
				now = now.Add(time.Second)
			}
			if _, coming, _ := s.turns.Left(bucket.Normal); coming > 0 || s.turns.Waiting() > 0 {
				t.Errorf("%d tenants are said to have keys that wait, and %d queues wait", coming, s.turns.Waiting())
			}
		})
	}
}

// TestLostQueueIsPutBack checks that a queue waits for no turn if an answer puts it back in line between the steps in
// which its partition is lost.
func TestLostQueueIsPutBack(t *testing.T) {
	s, p := New(&Policy{}, Pace{}, func(string) bucket.Micros { return 0 }), &Partition{}
	q := s.Push("k", 1, p)
	q.begin(q.waits.Take(bucket.Normal)).Phase = ready
	s.turns.Wait(q, bucket.Normal)
	s.Forget(q)
	for _, waiting := range s.turns.TakeAll() {
		s.turns.PutBack(waiting)
	}
	s.ForgetWaiting(p)
	if _, coming, _ := s.turns.Left(bucket.Normal); coming > 0 || s.turns.Waiting() > 0 {
		t.Errorf("%d tenants are said to have keys that wait, and %d queues wait", coming, s.turns.Waiting())
	}
}
