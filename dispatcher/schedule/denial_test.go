package schedule

import (
	"testing"
	"time"

	"weir/bucket"
)

// TestDenialHoldsLonger checks that the hold doubles with every denied probe, up to retry.max, and that each probe is
// another job's. A mended configuration is tried at once, whatever the end of a call under the former one says.
func TestDenialHoldsLonger(t *testing.T) {
	m := steady(t, bucket.Rate{Count: 100, Per: time.Second, Burst: 1})
	s, now := m.s, m.now
	retry := &s.policy.Retry
	retry.Min, retry.Max = time.Second, 4*time.Second
	q := s.Queue("key", m.part)
	deny := func(j *Job) Feedback {
		j.Policy = s.policy
		f := s.OnCallEnd(j, CallEnd{Denied: true, Detail: "the api answered 401", Sent: true, Started: now, Now: now})
		return f
	}
	first, second := &Job{Queue: q, Seq: 1}, &Job{Queue: q, Seq: 2}
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second} {
		if i > 0 {
			s.Holds.breaker.probe = first
		}
		f := deny(first)
		if got := now.Until(s.Holds.breaker.until); got != want || len(f.News) != 1 {
			t.Errorf("denial %d holds for %v and tells %d news, want %v", i+1, got, len(f.News), want)
		}
		if keeps := f.NotBefore == s.Holds.breaker.until; keeps != (i < patientDenials) {
			t.Errorf("denial %d: the job keeps its place: %v", i+1, keeps)
		}
		if f := deny(second); len(f.News) != 0 || f.NotBefore < s.Holds.breaker.until {
			t.Errorf("a call that was under way is told as news, or made again before the hold is over: %+v", f)
		}
		now = s.Holds.breaker.until
	}
	former := s.policy
	next := *former
	s.Adopt(&next)
	now = now.Add(-time.Millisecond)
	s.Holds.TryNow(now)
	if !s.Holds.breaker.denied || s.Holds.breaker.until > now || !s.Holds.breaker.halfOpen(now) {
		t.Fatalf("a mended configuration is not tried at once, with one call: %+v", s.Holds.breaker)
	}
	first.Policy, s.Holds.breaker.probe = former, first
	f := s.OnCallEnd(first, CallEnd{Denied: true, Sent: true, Started: now, Now: now})
	if s.Holds.breaker.until > now || s.Holds.breaker.probe != nil || len(f.News) != 0 || f.Denied {
		t.Errorf("a denial of the former terms holds the present ones: %+v", s.Holds.breaker)
	}
	s.Holds.breaker.probe, second.Policy = second, s.policy
	f = s.OnCallEnd(second, CallEnd{Sent: true, Started: now, Now: now})
	if !s.Holds.breaker.closed() || len(f.News) != 1 || f.News[0].Until != 0 {
		t.Errorf("a probe that was answered does not end the hold: %+v", s.Holds.breaker)
	}
	if s.Findings.DenyAgain(now.Add(time.Hour), now.Add(-time.Second), now, "401"); !s.Holds.breaker.closed() {
		t.Error("a mark of before is believed after a probe was answered")
	}
	s.Holds.breaker = breaker{}
	if s.Findings.DenyAgain(now.Add(time.Hour), now.Add(-time.Second), now, "401"); !s.Holds.breaker.closed() {
		t.Error("a mark of before is believed after a call was answered in order")
	}
	if s.Findings.DenyAgain(now.Add(time.Hour), now.Add(time.Second), now, "401"); s.Holds.breaker.closed() {
		t.Error("a mark of another owner's later denial is not believed")
	}
}

// TestTriedWhileAnOutcomeIsStored checks that TryNow also covers a job whose denied call is still being recorded: the
// job does not wait for the end of the hold that the operator ended.
func TestTriedWhileAnOutcomeIsStored(t *testing.T) {
	m := steady(t, bucket.Rate{Count: 100, Per: time.Second, Burst: 1})
	s, now := m.s, m.now
	s.policy.Retry.Min, s.policy.Retry.Max = time.Hour, time.Hour
	denied := func() (*Job, Feedback) {
		j := s.Extract(s.Push("key", 1, m.part), 1)
		j.Policy, j.Phase = s.policy, settling
		return j, s.OnCallEnd(j, CallEnd{Denied: true, Sent: true, Started: now, Now: now})
	}
	j, f := denied()
	now = now.Add(time.Millisecond)
	if s.Holds.TryNow(now); f.NotBefore <= now {
		t.Fatal("a denial does not hold")
	}
	if s.Rest(j, f.NotBefore); j.NotBefore > now {
		t.Errorf("the job waits %v longer, though the api is to be tried now", now.Until(j.NotBefore))
	}
	s.Finished(j)
	now = now.Add(time.Millisecond) // a job that is denied after that waits
	s.Holds.breaker = breaker{}
	j, f = denied()
	if s.Rest(j, f.NotBefore); j.NotBefore <= now {
		t.Error("a denied job does not wait, because an operator had the api tried before")
	}
}
