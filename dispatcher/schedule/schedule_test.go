package schedule

import (
	"fmt"
	"testing"
	"time"

	"weir/bucket"
)

// desk is a schedule driven by hand: nothing happens in it but what a test does.
type desk struct {
	*Schedule
	part    *Partition
	now     bucket.Micros
	spacing time.Duration // of the slots that are granted
}

func newDesk(limits bucket.KeyLimits, shared ...bucket.Limit) *desk {
	r := bucket.Rules{Key: limits, Shared: shared}
	s := New(&Policy{Rules: r}, Pace{
		PrepareLead: LeastLead, ReserveAhead: LeastAhead, GrantTTL: 4 * time.Millisecond, MaxStaged: MaxStaged, MaxCalls: MaxCalls,
	}, func(string) bucket.Micros { return 0 })
	s.policy.Breaker = BreakerPolicy{Failures: 1, Min: time.Second, Max: time.Minute}
	return &desk{s, &Partition{Open: true}, 1_700_000_000_000_000, 10 * time.Millisecond}
}

func fast(inFlight int64) bucket.KeyLimits {
	return bucket.KeyLimits{Rate: bucket.Rate{Count: 100, Per: time.Second, Burst: 1}, Capacity: 1000, InFlight: inFlight}
}

// add adds a job of each key.
func (d *desk) add(keys ...string) {
	for _, key := range keys {
		d.Push(key, uint64(d.census.unfinished+1), d.part)
	}
}

// turn steps once, and makes ready every job that must be.
func (d *desk) turn() Effects {
	fx := d.Step(d.now)
	for _, j := range fx.Load {
		j.Policy, j.Costs = d.policy, make([]int64, len(d.Shared))
		for i := range j.Costs {
			j.Costs[i] = 1
		}
		d.Loaded(j)
	}
	return fx
}

// grant is a turn in which every ask gets a slot at once, and every call that starts leaves and continues.
func (d *desk) grant() {
	fx := d.turn()
	for _, j := range fx.Start {
		d.Sent(j, d.now)
	}
	if len(fx.Asks) == 0 {
		return
	}
	r := Reply{Sent: d.now, Came: d.now}
	for range fx.Asks {
		r.Answers = append(r.Answers, bucket.Answer{Grants: []bucket.Grant{{At: d.now, TAT: d.now.Add(d.spacing)}}})
	}
	d.Answer(&fx, r)
}

func (d *desk) inPhase(p Phase) (n int) {
	for _, q := range d.byKey {
		n += q.count(p)
	}
	return n
}

func names(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint(prefix, i)
	}
	return names
}

// TestPausedKeyGivesTheProbeUp checks that a key whose job is the breaker's probe lets another key probe if it
// is paused, or held for long.
func TestPausedKeyGivesTheProbeUp(t *testing.T) {
	for name, stop := range map[string]func(d *desk, q *KeyQueue){
		"paused": func(d *desk, q *KeyQueue) { d.Pause(q.Key, Pause{}) },
		"held":   func(d *desk, q *KeyQueue) { d.Hold(q, d.now.Add(time.Hour), "429") },
	} {
		d := newDesk(fast(4))
		d.add("a", "b")
		d.holds.breaker.open(d.policy.Breaker, d.now.Add(-2*time.Second), 0) // half open by now
		d.turn()
		first := d.holds.breaker.probe
		if first == nil {
			t.Fatal("no probe")
		}
		stop(d, first.Queue)
		asked := false
		for range 100 {
			d.now = d.now.Add(10 * time.Millisecond)
			for _, a := range d.turn().Asks {
				asked = asked || a.Key != first.Queue.Key
			}
		}
		if !asked {
			t.Errorf("%s: the other key's job did not become the probe", name)
		}
	}
}

// TestNothingStaysReadyForAFarLimit checks that ready jobs go back when a shared limit turns out to open in
// three hours, also those that were not asked for: a crash meanwhile must not make them unknown.
func TestNothingStaysReadyForAFarLimit(t *testing.T) {
	d := newDesk(fast(4), bucket.Limit{Name: "q", Quota: &bucket.Quota{Count: 10, Per: 3 * time.Hour, Window: bucket.Sliding}})
	d.add(names("k", 300)...)
	until := d.now.Add(3 * time.Hour)
	for i := range 2000 {
		fx := d.turn()
		if len(fx.Asks) > 0 {
			wait := d.now.Add(20 * time.Millisecond) // something else binds first
			if i > 50 {
				wait = until
			}
			r := Reply{Sent: d.now, Came: d.now}
			for range fx.Asks {
				r.Answers = append(r.Answers, bucket.Answer{Wait: bucket.Wait{Limit: "q", Until: wait}})
			}
			d.Answer(&fx, r)
		}
		d.now = d.now.Add(10 * time.Millisecond)
	}
	if n := d.inPhase(ready) + d.inPhase(staging); n > 0 {
		t.Errorf("%s before the limit opens %d jobs are ready", d.now.Until(until), n)
	}
}

// TestLongCallsUseAllOfInFlight checks that a key makes as many calls at once as its limit allows, however long they
// take, and no more.
func TestLongCallsUseAllOfInFlight(t *testing.T) {
	for _, most := range []int64{1, 4, maxAsks, maxAsks + 1, 300} {
		d := newDesk(fast(most))
		d.Pipe.LearnCall(12 * time.Second)
		for range most + 100 {
			d.add("k")
		}
		for range 10*most + 100 {
			d.now = d.now.Add(2 * time.Millisecond)
			for d.Next(d.now) <= d.now {
				d.grant()
			}
		}
		if n := d.inPhase(calling); int64(n) != most {
			t.Errorf("%d calls run at once, and %d may", n, most)
		}
	}
}

// TestLongCallsLeaveRoom checks that nothing is made ready behind long calls that cannot start: it would make
// keys wait whose calls can.
func TestLongCallsLeaveRoom(t *testing.T) {
	d := newDesk(fast(1))
	d.Pipe.LearnCall(12 * time.Second)
	busy := names("busy", 300)
	d.add(busy...)
	d.add(busy...)
	for range 500 { // every busy key has a call that runs, and a job behind it
		d.now = d.now.Add(2 * time.Millisecond)
		for d.Next(d.now) <= d.now {
			d.grant()
		}
	}
	if n := d.inPhase(calling); n < 300 {
		t.Fatalf("%d of 300 calls run", n)
	}
	d.add("idle")
	if fx := d.turn(); len(fx.Load) != 1 || fx.Load[0].Queue.Key != "idle" {
		t.Errorf("%d jobs are made ready at once, %d are ready already: the idle key waits for others' calls", len(fx.Load), d.inPhase(ready))
	}
}

// TestBreakerTurnedOffCloses checks that a configuration without a breaker lets an api be called whose breaker
// was open.
func TestBreakerTurnedOffCloses(t *testing.T) {
	d := newDesk(fast(4))
	d.add(names("k", 5)...)
	d.holds.breaker.open(d.policy.Breaker, d.now, 0)
	next := *d.policy
	next.Breaker.Failures = 0
	d.Adopt(&next)
	for _, q := range d.byKey {
		d.Rebind(q, d.now)
	}
	if n := len(d.turn().Load); n != 5 {
		t.Errorf("%d of 5 jobs are made ready", n)
	}
}

// TestPartGoesWhileRulesChange checks that queues dropped between the adoption of a new policy and their own
// rebinding disturb neither tenants nor turns.
func TestPartGoesWhileRulesChange(t *testing.T) {
	d := newDesk(fast(4), bucket.Limit{Name: "q", Quota: &bucket.Quota{Count: 10, Per: 3 * time.Hour, Window: bucket.Sliding}})
	d.policy.Rules.TenantUntil = "."
	d.Adopt(d.policy)
	d.gate.opens = d.now.Add(time.Hour)
	d.add("a.1", "b.1", "c.1", "c.2", "d.1")
	d.turn()
	if d.turns.preparing() != 5 {
		t.Fatalf("%d of 5 queues wait", d.turns.preparing())
	}
	kept := d.byKey["a.1"]
	next := *d.policy
	next.Rules.TenantUntil = "."
	d.Adopt(&next)
	d.Rebind(kept, d.now)
	var gone []*KeyQueue
	for _, q := range d.byKey {
		if q != kept {
			d.Forget(q)
			gone = append(gone, q)
		}
	}
	d.ForgetWaiting(&Partition{})
	for _, q := range gone {
		d.Rebind(q, d.now)
	}
	if len(d.turns.normal().tenants) != 1 || d.turns.normal().tenants["a"] != kept.seat.tenant || len(d.byKey) != 1 {
		t.Errorf("%d tenants and %d queues are left of one", len(d.turns.normal().tenants), len(d.byKey))
	}
}

// TestSuspectsAreCalledFewAtATime checks that one death makes no job a suspect, that suspects of two deaths are
// not called in single file, and that suspects of three are called alone.
func TestSuspectsAreCalledFewAtATime(t *testing.T) {
	d := newDesk(fast(4))
	d.add("k0")
	j := d.Extract(d.byKey["k0"], 1)
	d.suspects.alone = &Job{Deaths: aloneFrom} // is being called
	if j.Deaths = 1; !d.suspects.mayCall(j) {
		t.Error("after one death a job waits as a suspect")
	}
	for deaths, most := range map[int]int{suspectFrom: manySuspects, aloneFrom: 1} {
		d := newDesk(fast(4))
		d.add(names("k", 50)...)
		for _, q := range d.byKey {
			j := d.Extract(q, q.waits.first)
			j.Phase, j.NotBefore, j.Calls, j.Deaths = resting, 1, 1, deaths
		}
		ended := 0
		for range 200 {
			fx := d.turn()
			if n := len(d.suspects.underWay); n > most {
				t.Fatalf("after %d deaths %d suspects are called at once", deaths, n)
			}
			for j := range d.suspects.underWay {
				if j.Phase == ready || j.Phase == asking {
					d.Unstage(j)
					d.Finished(j)
					ended++
				}
			}
			_ = fx
			d.now = d.now.Add(10 * time.Millisecond)
		}
		if ended != 50 {
			t.Errorf("after %d deaths %d of 50 suspects were called", deaths, ended)
		}
	}
}

// TestJobsKeepTheirPlaces checks that a key's jobs that wait no longer are in the order of acceptance, in whatever
// order they left, as when some were found at a takeover.
func TestJobsKeepTheirPlaces(t *testing.T) {
	rate := bucket.Rate{Count: 1, Per: time.Second, Burst: 1}
	rules := bucket.Rules{Key: bucket.KeyLimits{Rate: rate, InFlight: 4, Capacity: 10}}
	s := New(&Policy{Rules: rules}, Pace{}, func(string) bucket.Micros { return 0 })
	p := &Partition{Open: true}
	var q *KeyQueue
	for seq := uint64(1); seq <= 4; seq++ {
		q = s.Push("k", seq, p)
	}
	for _, seq := range []uint64{3, 1} {
		s.Extract(q, seq)
	}
	q.dequeue(bucket.Normal) // 2
	for i, j := range q.Jobs {
		if j.Seq != uint64(i+1) {
			t.Errorf("job %d stands in place %d", j.Seq, i+1)
		}
	}
	for seq := uint64(1); seq <= 4; seq++ {
		if rank, _ := q.Rank(seq); rank != int(seq) {
			t.Errorf("job %d has rank %d", seq, rank)
		}
	}
}
