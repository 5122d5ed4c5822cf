package schedule

import (
	"testing"
	"time"

	"weir/bucket"
)

// TestFirstFailureIsTold checks that only the first of several failed calls in a row is reported, and that the breaker
// says why when it opens.
func TestFirstFailureIsTold(t *testing.T) {
	s, p, now := inspected(hourly())
	policy := &Policy{Breaker: BreakerPolicy{Failures: 3, Min: time.Second, Max: time.Second}, Retry: Retry{Attempts: 5}}
	q := s.Push("k", 500, p)
	hear := func(seq uint64, e CallEnd) Feedback {
		e.Started, e.Now = now, now
		return s.OnCallEnd(&Job{Queue: q, Seq: seq, Policy: policy}, e)
	}
	failed := CallEnd{Again: true, Fault: true, Detail: "connection refused"}
	for i, want := range []bool{true, false, false} {
		if f := hear(uint64(600+i), failed); f.First != want {
			t.Errorf("failure %d in a row is told as the first: %v", i+1, f.First)
		}
	}
	if w := s.At(now).waits(q); w.For != WaitAPIHeld || w.Why != "its calls keep failing: connection refused" {
		t.Errorf("behind the breaker a job waits for %s because %s", w.For, w.Why)
	}
	s.Holds.breaker.close(now)
	hear(700, failed)
	hear(701, CallEnd{Sent: true})
	if f := hear(702, failed); !f.First {
		t.Error("the first failure after a call that worked is not told")
	}
}

// TestUnsentCallSaysNothing checks that a call that could not be made because of its job, so that nothing was sent,
// neither ends a row of failures nor closes the breaker.
func TestUnsentCallSaysNothing(t *testing.T) {
	s, p, now := inspected(hourly())
	policy := &Policy{Breaker: BreakerPolicy{Failures: 2, Min: time.Second, Max: time.Second}, Retry: Retry{Attempts: 5}}
	q := s.Push("k", 500, p)
	hear := func(j *Job, e CallEnd) Feedback {
		j.Queue, j.Policy, e.Started, e.Now = q, policy, now, now
		return s.OnCallEnd(j, e)
	}
	unsent, failed := CallEnd{Again: true, Detail: "its path does not stay below the url"}, CallEnd{Again: true, Fault: true}
	hear(&Job{Seq: 600}, failed)
	hear(&Job{Seq: 601}, unsent)
	if f := hear(&Job{Seq: 602}, failed); f.First || s.Holds.breaker.closed() {
		t.Error("a call that was not sent ended a row of failures")
	}
	now = s.Holds.breaker.until
	probe := &Job{Seq: 603}
	s.Holds.breaker.try(probe)
	if f := hear(probe, unsent); len(f.News) > 0 || s.Holds.breaker.closed() || s.Holds.breaker.probe != nil {
		t.Errorf("a probe that was not sent: %+v, the probe is %v", f, s.Holds.breaker.probe)
	}
}

// TestProbesTakeTurns checks that each probe is another job's, since a probe costs an attempt. Jobs that have not
// failed yet go first, even if a job of their key has failed.
func TestProbesTakeTurns(t *testing.T) {
	policy := &Policy{
		Rules:   bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 100}, Capacity: 100, InFlight: 9}},
		Breaker: BreakerPolicy{Failures: 1, Min: 10 * time.Second, Max: 10 * time.Second}, Retry: Retry{Attempts: 9, Min: time.Second, Max: time.Second},
	}
	s := New(policy, Pace{PrepareLead: LeastLead, ReserveAhead: LeastAhead, GrantTTL: time.Millisecond, MaxStaged: 8, MaxCalls: 8}, func(string) bucket.Micros { return 0 })
	p := &Partition{Open: true}
	for i, key := range []string{"a", "b", "c", "d"} {
		s.Push(key, uint64(1+i), p)
	}
	now := someTime
	s.Holds.breaker.open(policy.Breaker, now, 0)
	times := map[uint64]int{}
	const later = 8
	for round := range later + 2 {
		if round == later {
			s.Push("a", 5, p)
			s.Push("e", 6, p)
		}
		now = s.Holds.breaker.until
		var probe *Job
		for steps := 0; probe == nil; steps++ {
			if steps == 10 {
				t.Fatalf("nothing is tried in round %d", round)
			}
			for _, j := range s.Step(now).Load {
				probe = j
			}
		}
		times[probe.Seq]++
		probe.Policy = policy
		s.Unconnected(probe)
		probe.Calls++
		f := s.OnCallEnd(probe, CallEnd{Again: true, Fault: true, Sent: true, Started: now, Now: now})
		if f.Free {
			t.Fatal("a call that was sent cost no attempt")
		}
		s.Rest(probe, f.NotBefore)
		if round == 3 && len(times) != 4 {
			t.Fatalf("four probes were of these jobs: %v", times)
		}
	}
	if times[5] != 1 || times[6] != 1 {
		t.Errorf("jobs that had not failed yet were not tried before the others: %v", times)
	}
}
