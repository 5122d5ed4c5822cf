package schedule

import (
	"testing"
	"time"
)

// TestFirstFailureIsTold: the first call that fails in a row is told, those behind it are not, and when the breaker opens
// it says why.
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
	if w := s.waits(q, now); w.For != WaitAPIHeld || w.Why != "its calls keep failing: connection refused" {
		t.Errorf("behind the breaker a job waits for %s because %s", w.For, w.Why)
	}
	s.breaker.close(now)
	hear(700, failed)
	hear(701, CallEnd{})
	if f := hear(702, failed); !f.First {
		t.Error("the first failure after a call that worked is not told")
	}
}
