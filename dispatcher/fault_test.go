package dispatcher

import (
	"testing"
	"time"

	"weir/dispatcher/httpcall"
)

// TestFirstFailureIsTold: the first call that fails in a row is told, those behind it are not, and when the breaker opens
// it says why.
func TestFirstFailureIsTold(t *testing.T) {
	s, p, now := inspected(hourly())
	policy := &Policy{Breaker: httpcall.Breaker{Failures: 3, Min: time.Second, Max: time.Second}, Retry: Retry{Attempts: 5}}
	l := s.push("k", 500, p)
	hear := func(seq uint64, e CallEnd) feedback {
		e.Started, e.Now = now, now
		return s.hear(&task{line: l, seq: seq, policy: policy}, e)
	}
	failed := CallEnd{Again: true, Fault: true, Detail: "connection refused"}
	for i, want := range []bool{true, false, false} {
		if f := hear(uint64(600+i), failed); f.first != want {
			t.Errorf("failure %d in a row is told as the first: %v", i+1, f.first)
		}
	}
	if w := s.waits(l, now); w.For != WaitAPIHeld || w.Why != "its calls keep failing: connection refused" {
		t.Errorf("behind the breaker a job waits for %s because %s", w.For, w.Why)
	}
	s.breaker.close(now)
	hear(700, failed)
	hear(701, CallEnd{})
	if f := hear(702, failed); !f.first {
		t.Error("the first failure after a call that worked is not told")
	}
}
