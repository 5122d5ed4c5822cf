package schedule

import (
	"testing"
	"time"

	"weir/bucket"
)

// claim gives a replica the claim if its schedule wants it, and reports whether it did.
func (f *council) claim(i int) bool {
	d := f.desks[i]
	fx := d.turn()
	if fx.Claim == 0 {
		return false
	}
	d.Findings.Claim(fx.Claim, d.now)
	return d.Findings.HasClaim()
}

// TestOneProbeForAll checks that while the breaker of all replicas is open, none makes a call without the claim, and
// that the end of the probe holds, or frees, all of them.
func TestOneProbeForAll(t *testing.T) {
	for what, fails := range map[string]CallEnd{
		"failures": {Fault: true, Again: true, Detail: "500"}, "denial": {Denied: true, Detail: "401", Mend: "renew the key"},
	} {
		t.Run(what, func(t *testing.T) {
			f := newCouncil(3, 2)
			f.end(0, fails)
			f.end(0, fails)
			f.settle()
			for range 3 {
				for i, d := range f.desks {
					if n := f.starts(i); n != 0 {
						t.Fatalf("replica %d starts %d calls while the breaker is open", i, n)
					}
					if d.Holds.breaker.denied != fails.Denied || d.Holds.breaker.opened != f.desks[0].Holds.breaker.opened {
						t.Fatalf("replica %d: %+v", i, d.Holds.breaker)
					}
				}
				f.pass(8 * time.Second)
				for i := range f.desks {
					if n := f.starts(i); n != 0 {
						t.Fatalf("replica %d probes without the claim", i)
					}
				}
				f.desks[1].Findings.Claim(f.entry.Turn, f.desks[1].now)
				if n := f.starts(1); n != 1 {
					t.Fatalf("the replica that has the claim makes %d calls", n)
				}
				probe := f.desks[1].Holds.breaker.probe
				e := fails
				e.Now, e.Started, e.Sent = f.desks[1].now, f.desks[1].now, true
				f.desks[1].Pipe.end(probe)
				fb := f.desks[1].OnCallEnd(probe, e)
				f.desks[1].Rest(probe, fb.NotBefore)
				f.settle()
			}
			f.pass(8 * time.Second)
			if !f.claim(2) {
				t.Fatal("no job wants to be the probe")
			}
			f.starts(2)
			probe := f.desks[2].Holds.breaker.probe
			f.desks[2].OnCallEnd(probe, CallEnd{Sent: true, Started: f.desks[2].now, Now: f.desks[2].now})
			f.settle()
			for i, d := range f.desks {
				if !d.Holds.breaker.closed() || !d.Holds.governor.slows() {
					t.Errorf("replica %d: an answered probe of another replica does not close the breaker, or does not slow: %+v", i, d.Holds.breaker)
				}
			}
			f.pass(2 * time.Second)
			if n := f.starts(0); n == 0 {
				t.Error("no call after the breaker has closed")
			}
		})
	}
}

// TestUnusedClaimEnds checks that a replica without a job for the probe gives the claim back.
func TestUnusedClaimEnds(t *testing.T) {
	f := newCouncil(2, 0)
	f.desks[0].Queue("r0k0", f.desks[0].part)
	f.end(0, CallEnd{Denied: true})
	f.settle()
	f.pass(8 * time.Second)
	d := f.desks[1]
	d.Findings.Claim(f.entry.Turn, d.now)
	if fx := d.turn(); fx.Unclaim || !d.Findings.HasClaim() {
		t.Fatal("the claim ends at once: a step need not reach the probe's job")
	}
	if next := d.Next(d.now); next > d.now.Add(idleClaim) {
		t.Errorf("nothing is to be done for %v", d.now.Until(next))
	}
	f.pass(idleClaim)
	if fx := d.turn(); !fx.Unclaim || d.Findings.HasClaim() {
		t.Error("a claim without a job goes on")
	}
}

// TestLostClaim checks that a replica that has lost its claim drops a probe that it has not called yet.
func TestLostClaim(t *testing.T) {
	f := newCouncil(2, 2)
	f.end(0, CallEnd{Denied: true})
	f.settle()
	f.pass(8 * time.Second)
	d := f.desks[1]
	d.Findings.Claim(f.entry.Turn, d.now)
	if d.turn(); d.Holds.breaker.probe == nil {
		t.Fatal("the claim makes no job the probe")
	}
	d.Findings.LoseClaim()
	if n := f.starts(1); n != 0 || d.Holds.breaker.probe != nil {
		t.Errorf("%d calls after the claim was lost", n)
	}
}

// TestUnreachableIsNotShared checks that a replica that cannot open a connection holds itself alone and probes by
// itself: another replica may reach the api.
func TestUnreachableIsNotShared(t *testing.T) {
	f := newCouncil(2, 2)
	d := f.desks[0]
	j := &Job{Queue: d.Queue("r0k0", d.part), Seq: 1000, Policy: d.policy}
	for range 2 {
		d.OnCallEnd(j, CallEnd{Fault: true, Again: true, Detail: "connection refused", Started: d.now, Now: d.now})
	}
	if d.Holds.breaker.closed() {
		t.Fatal("the breaker is closed")
	}
	f.settle()
	if n := f.starts(1); f.version != 0 || n == 0 {
		t.Errorf("%d writes; the replica that reaches the api makes %d calls", f.version, n)
	}
	f.pass(8 * time.Second)
	if n := f.starts(0); n != 1 {
		t.Errorf("the replica that could not reach the api makes %d calls to try again", n)
	}
}

// TestMissedClosing checks that a replica takes over why the breaker is open, although it has not seen that the breaker
// closed before.
func TestMissedClosing(t *testing.T) {
	f := newCouncil(3, 1)
	fault := CallEnd{Fault: true, Again: true, Detail: "500"}
	for range 2 {
		f.end(0, fault)
		f.end(2, fault)
	}
	f.pass(950 * time.Millisecond)
	f.end(1, CallEnd{Denied: true, Detail: "401"})
	f.tell(1)
	f.learn(0)
	f.pass(200 * time.Millisecond)
	f.probe(1, false)
	f.tell(1)
	f.learn(2)
	f.tell(2)
	f.learn(0)
	if b := &f.desks[0].Holds.breaker; b.closed() || b.denied || b.why != "500" {
		t.Errorf("%+v after %+v", *b, f.entry)
	}
}

// TestProbeAlone checks that a replica that cannot store a claim may probe without one, until it can.
func TestProbeAlone(t *testing.T) {
	f := newCouncil(2, 2)
	d := f.desks[0]
	if d.Findings.ProbeAlone() {
		t.Error("there is a probe while the breaker is closed")
	}
	f.end(0, CallEnd{Denied: true})
	f.pass(8 * time.Second)
	if n := f.starts(0); n != 0 {
		t.Fatalf("%d calls before the others know that the breaker is open", n)
	}
	if !d.Findings.ProbeAlone() || d.Findings.ProbeAlone() {
		t.Error("ProbeAlone does not report a change once")
	}
	if d.turn(); d.Holds.breaker.probe == nil {
		t.Fatal("there is no probe")
	}
	f.settle()
	if d.Holds.breaker.probe != nil {
		t.Error("there is a probe without a claim after the turn was stored")
	}
	if !f.claim(0) {
		t.Error("the probe cannot be claimed any more")
	}
}

// TestTheProbeYields checks that a job whose call failed as the probe is not the next probe if another job waits,
// although the claim comes later than the job's turn.
func TestTheProbeYields(t *testing.T) {
	f := newCouncil(2, 2)
	f.end(0, CallEnd{Denied: true})
	f.settle()
	d := f.desks[0]
	for range 2 {
		f.pass(8 * time.Second)
		if !f.claim(0) {
			t.Fatal("no job wants to be the probe")
		}
		f.starts(0)
		probe := d.Holds.breaker.probe
		if probe == nil {
			t.Fatal("there is no probe")
		}
		if probe.tripped {
			t.Fatalf("the job of %s is the probe again", probe.Queue.Key)
		}
		d.Pipe.end(probe)
		fb := d.OnCallEnd(probe, CallEnd{Denied: true, Sent: true, Started: d.now, Now: d.now})
		d.Rest(probe, fb.NotBefore)
		f.settle()
	}
}

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
