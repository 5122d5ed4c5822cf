package schedule

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/internal/seeds"
	"weir/dispatcher/schedule/limits"
)

// limitReplica gives a simulation a rate and a limit of calls at once that its process has for itself.
func (m *simulation) limitReplica() *simulation {
	rate := bucket.Rate{Count: 1 + m.rnd.Int64N(200), Per: time.Second, Burst: 1}
	if m.rnd.IntN(3) == 0 {
		rate.Burst, rate.Counts = 1+m.rnd.Int64N(10), bucket.ByTokens
	}
	m.policy.Rules.Replica = []bucket.Limit{
		{Name: "paced", Rate: &rate, Replica: true}, {Name: "few", InFlight: 1 + m.rnd.Int64N(6), Replica: true},
	}
	m.s.Adopt(m.policy)
	return m
}

// checkReplica checks the calls of all keys against the limits of the process.
func (m *simulation) checkReplica() {
	var all []bucket.Arrival
	for _, of := range m.starts {
		all = append(all, of...)
	}
	slices.SortFunc(all, func(a, b bucket.Arrival) int { return int(a.At - b.At) })
	paced, few := m.policy.Rules.Replica[0], m.policy.Rules.Replica[1]
	if v := bucket.Check(all, bucket.Expectation{Limit: paced, Jitter: m.policy.Rules.Jitter}); v.Outcome == bucket.Fail {
		m.t.Fatalf("%s: %s", paced.Name, v)
	}
	if m.maxInAPI > int(few.InFlight) {
		m.t.Fatalf("%d calls ran at once, %d may", m.maxInAPI, few.InFlight)
	}
}

// TestReplicaLimits runs seeds with limits of the process beside those of a store, which is in the process or
// elsewhere. No call exceeds any of them, and every job ends. One seed alone: go test ./dispatcher/schedule -run
// ReplicaLimits/seed=7.
func TestReplicaLimits(t *testing.T) {
	for seed := range seeds.Of(4_000) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			m := newSimulation(t, seed)
			if seed%2 == 1 {
				m.sendAway()
			}
			m.limitReplica().play()
			m.checkReplica()
		})
	}
}

// TestReplicaRateIsUsed checks that a process is hardly below its own rate while jobs of many keys wait, and that it
// makes no burst at its start: a former process may have used the rate.
func TestReplicaRateIsUsed(t *testing.T) {
	m := steady(t, bucket.Rate{Count: 100, Per: time.Second, Burst: 1})
	rate := bucket.Rate{Count: 50, Per: time.Second, Burst: 20, Counts: bucket.ByTokens}
	m.policy.Rules.Replica = []bucket.Limit{{Name: "paced", Rate: &rate, Replica: true}}
	m.s.Adopt(m.policy)
	m.run(20, 500)
	m.rest()
	m.check()
	var all []int64
	for _, of := range m.starts {
		for _, a := range of {
			all = append(all, a.At)
		}
	}
	slices.Sort(all)
	if early := time.Duration(all[10] - all[0]); early < 150*time.Millisecond {
		t.Errorf("ten calls in %v after the start", early)
	}
	if used := float64(len(all)-1) / (time.Duration(all[len(all)-1]-all[0]).Seconds() * 50); used < 0.9 {
		t.Errorf("%.0f %% of the rate was used while jobs waited", 100*used)
	}
}

// asks returns the first turn that asks for something, or else the last of some.
func (d *desk) asks() (fx Effects) {
	for range 5 {
		if fx = d.turn(); len(fx.Asks) > 0 {
			break
		}
	}
	return fx
}

// TestReplicaLimitsWithAStore checks the two ways in which one call takes from limits of the process and of the store:
// what the store refuses takes nothing here, and what is refused here is not asked of the store.
func TestReplicaLimitsWithAStore(t *testing.T) {
	d := newDesk(fast(4), bucket.Limit{Name: "all", Rate: &bucket.Rate{Count: 100, Per: time.Second, Burst: 1}})
	d.policy.Rules.Replica = []bucket.Limit{
		{Name: "paced", Rate: &bucket.Rate{Count: 1, Per: time.Second, Burst: 1}, Replica: true}, {Name: "few", InFlight: 1, Replica: true},
	}
	d.Adopt(d.policy)
	d.add("a", "b")
	if fx := d.asks(); len(fx.Asks) > 0 {
		t.Fatal("the rate is not used up at the start")
	}
	d.now = d.now.Add(1100 * time.Millisecond)
	fx := d.asks()
	if len(fx.Asks) != 1 {
		t.Fatalf("%d asks", len(fx.Asks))
	}
	refused := Reply{Sent: d.now, Came: d.now, Answers: []bucket.Answer{{Wait: bucket.Wait{Limit: "all", Until: d.now.Add(time.Millisecond)}}}}
	d.Answer(&fx, refused)
	if at, by := d.gate.replica.Opens(d.now, d.Pipe.underWay(), 0); at > d.now {
		t.Errorf("what the store refused counts in %s until %v", by, at)
	}
	d.now = d.now.Add(2 * time.Millisecond)
	d.grant()
	d.grant()
	if n := d.inPhase(calling); n != 1 {
		t.Fatalf("%d calls run", n)
	}
	d.now = d.now.Add(1100 * time.Millisecond)
	if fx := d.asks(); len(fx.Asks) > 0 || d.gate.by != "few" {
		t.Errorf("the store is asked for %d more while one call runs; waits for %q", len(fx.Asks), d.gate.by)
	}
	for _, q := range d.Queues.byKey {
		for _, j := range q.Jobs {
			if j.Phase == calling {
				d.Ended(j, nil, d.now)
			}
		}
	}
	if fx := d.asks(); len(fx.Asks) != 1 {
		t.Error("the end of the call does not let the next one be asked for")
	}
}

// TestReplicaLimitsCountInquiries checks that a call beside the jobs counts like theirs.
func TestReplicaLimitsCountInquiries(t *testing.T) {
	d := newDesk(fast(4))
	d.policy.Rules.Replica = []bucket.Limit{
		{Name: "paced", Rate: &bucket.Rate{Count: 1, Per: time.Second, Burst: 1}, Replica: true}, {Name: "few", InFlight: 1, Replica: true},
	}
	d.Adopt(d.policy)
	if at, by := d.TakeReplica(d.now, d.now); at == 0 || by != "paced" {
		t.Fatalf("an inquiry passes a rate that is used up: %s", by)
	}
	d.now = d.now.Add(2 * time.Second)
	if at, by := d.TakeReplica(d.now, d.now); at != 0 {
		t.Fatalf("%s refuses an inquiry", by)
	}
	d.add("a")
	if fx := d.asks(); len(fx.Asks) > 0 {
		t.Error("a call is asked for while an inquiry runs")
	}
	d.EndReplica(d.now, false)
	if fx := d.asks(); len(fx.Asks) != 1 {
		t.Error("an inquiry that was not sent takes from the rate")
	}
}

// TestUsesOfReplicaLimits checks that the use of a limit of the process is what its calls and inquiries take, without
// an inquiry that was not made.
func TestUsesOfReplicaLimits(t *testing.T) {
	f := foresee(t, 300*time.Millisecond, bucket.Rules{
		Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 50, Per: time.Second, Burst: 1}, Capacity: 1000, InFlight: 50},
		Replica: []bucket.Limit{
			{Name: "paced", Rate: &bucket.Rate{Count: 10, Per: time.Second, Burst: 1}, Replica: true}, {Name: "few", InFlight: 7, Replica: true},
		},
	})
	check := func(what string, paced, few int64) {
		t.Helper()
		uses := f.s.At(f.now).Uses()
		if len(uses) != 2 {
			t.Fatalf("%s: %+v", what, uses)
		}
		of, running := uses[0], uses[1]
		if of.Limit != "paced" || of.Used < paced-1 || of.Used > paced || of.Count != 10 || of.Per != time.Second || !of.Replica {
			t.Errorf("%s: the rate: %+v", what, of)
		}
		if running.Limit != "few" || running.Used < few-1 || running.Used > few || running.Count != 7 || running.Per != 0 || !running.Replica {
			t.Errorf("%s: of calls in flight: %+v", what, running)
		}
	}
	for range 100 {
		f.submit("k")
	}
	f.run(5 * time.Second)
	check("while jobs wait", 10, 4)
	f.s.Holds.Pause("", Pause{})
	f.run(3 * time.Second)
	check("when all calls have ended", 0, 0)
	for range 3 {
		f.run(200 * time.Millisecond)
		if _, limit := f.s.TakeReplica(f.now, f.now); limit != "" {
			t.Fatalf("%s refuses an inquiry", limit)
		}
	}
	check("of three inquiries", 3, 3)
	f.s.EndReplica(f.now, false)
	check("without the last of them", 2, 2)
}

// TestReplicaRateWhileAsked checks that an inquiry does not take the unit of a rate for which a job asks meanwhile.
func TestReplicaRateWhileAsked(t *testing.T) {
	d := newDesk(fast(4))
	d.policy.Rules.Replica = []bucket.Limit{{Name: "paced", Rate: &bucket.Rate{Count: 1, Per: time.Second, Burst: 1}, Replica: true}}
	d.Adopt(d.policy)
	d.add("a")
	d.asks()
	d.now = d.now.Add(1100 * time.Millisecond)
	fx := d.asks()
	if len(fx.Asks) != 1 {
		t.Fatalf("%d asks", len(fx.Asks))
	}
	if at, by := d.TakeReplica(d.now, d.now); by != "paced" || at <= d.now {
		t.Errorf("an inquiry passes %q at %v while a job asks", by, at)
	}
	d.Answer(&fx, Reply{Sent: d.now, Came: d.now, Answers: []bucket.Answer{{Grants: []bucket.Grant{{At: d.now, TAT: d.now}}}}})
	if at, _ := d.TakeReplica(d.now, d.now); at != d.now.Add(time.Second) {
		t.Errorf("an inquiry passes in %v after the job's call", d.now.Until(at))
	}
}

// TestNewReplicaRateCountsGrants checks that a rate that is new or has changed does not let a call pass too soon after
// calls that were granted before and have not started.
func TestNewReplicaRateCountsGrants(t *testing.T) {
	for what, former := range map[string][]bucket.Limit{
		"new": nil, "changed": {{Name: "paced", Rate: &bucket.Rate{Count: 100, Per: time.Second, Burst: 1}, Replica: true}},
	} {
		d := newDesk(fast(4))
		d.policy.Rules.Replica = former
		d.Adopt(d.policy)
		d.add("a")
		fx := d.asks()
		if d.now = d.now.Add(100 * time.Millisecond); len(fx.Asks) == 0 {
			fx = d.asks()
		}
		slot := d.now.Add(time.Second)
		if len(fx.Asks) != 1 {
			t.Fatalf("%s: %d asks", what, len(fx.Asks))
		}
		d.Answer(&fx, Reply{Sent: d.now, Came: d.now, Answers: []bucket.Answer{{Grants: []bucket.Grant{{At: slot, TAT: slot}}}}})
		next := *d.policy
		next.Rules.Replica = []bucket.Limit{{Name: "paced", Rate: &bucket.Rate{Count: 10, Per: time.Second, Burst: 1}, Replica: true}}
		d.Adopt(&next)
		if at, _ := d.TakeReplica(d.now, d.now); at != slot.Add(100*time.Millisecond) {
			t.Errorf("%s: a call passes %v after the slot of the call before it", what, slot.Until(at))
		}
	}
}

// TestOnlyUnitsReopenAReplicaRate checks that the end of a call does not make the process look at its rate too early,
// and that a unit that comes back does.
func TestOnlyUnitsReopenAReplicaRate(t *testing.T) {
	d := newDesk(fast(4))
	d.policy.Rules.Replica = []bucket.Limit{
		{Name: "paced", Rate: &bucket.Rate{Count: 1, Per: time.Second, Burst: 1}, Replica: true}, {Name: "few", InFlight: 5, Replica: true},
	}
	d.Adopt(d.policy)
	d.asks()
	d.TakeReplica(d.now, d.now)
	d.now = d.now.Add(2 * time.Second)
	if _, by := d.TakeReplica(d.now, d.now); by != "" {
		t.Fatalf("%s refuses an inquiry", by)
	}
	d.add("a")
	if d.asks(); d.gate.by != "paced" || !d.gate.isShut(d.now) {
		t.Fatalf("the gate is shut by %q until %v", d.gate.by, d.gate.opens)
	}
	if d.gate.freed(); !d.gate.isShut(d.now) {
		t.Error("the end of a call opens the gate that a rate has shut")
	}
	if d.EndReplica(d.now, false); d.gate.isShut(d.now) {
		t.Error("a unit that comes back does not open the gate")
	}
}

// TestReadyOnlyForNearCalls checks that under a slow shared limit no more jobs are kept ready, each with an
// intent, than can start within LongWait, since a crash makes each of them unknown. The limit is still used up,
// and keys take turns.
func TestReadyOnlyForNearCalls(t *testing.T) {
	for _, every := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, time.Second, 10 * time.Second} {
		t.Run(every.String(), func(t *testing.T) {
			rate := bucket.Rate{Count: 1, Per: every, Burst: 1}
			f := foresee(t, time.Millisecond, bucket.Rules{
				Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 100, Per: time.Second, Burst: 1}, Capacity: 1000, InFlight: 4},
				Shared: []bucket.Limit{{Name: "account", Rate: &rate}},
			})
			const keys, turns = 20, 3
			for range turns + 1 {
				for i := range keys {
					f.submit(fmt.Sprint("k", i))
				}
			}
			most, over := 1+int(limits.LongWait/every), 0
			for end := f.now.Add(keys * turns * every); f.now < end; {
				f.run(time.Millisecond)
				n := 0
				for q := range f.s.Queues.All() {
					n += q.Jobs.count(staging, ready, asking, granted)
				}
				if n > most {
					over++
				}
			}
			if over > 0 {
				t.Errorf("for %d ms more than %d jobs were ready", over, most)
			}
			if n := len(f.began); n < keys*turns-2 || n > keys*turns+1 {
				t.Errorf("%d calls began, want %d", n, keys*turns)
			}
			for q := range f.s.Queues.All() {
				if n := turns + 1 - q.Depth(); n < turns-1 || n > turns+1 {
					t.Errorf("%s had %d turns, others %d", q.Key, n, turns)
				}
			}
		})
	}
}

// TestIntentsCostNoSlots checks that keeping few jobs ready costs no call of a shared limit, however long it
// takes to make one ready, and however few keys share the limit.
func TestIntentsCostNoSlots(t *testing.T) {
	for _, load := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 40 * time.Millisecond} {
		for _, every := range []time.Duration{2 * time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond, time.Second} {
			for _, keys := range []int{1, 2, 20} {
				rate := bucket.Rate{Count: 1, Per: every, Burst: 1}
				f := foresee(t, 10*time.Millisecond, bucket.Rules{
					Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1}, Capacity: 10000, InFlight: 64},
					Shared: []bucket.Limit{{Name: "account", Rate: &rate}},
				})
				f.load = load
				const calls = 100
				for i := range 2 * calls {
					f.submit(fmt.Sprint("k", i%keys))
				}
				f.run(calls*every + 2*load)
				if n := len(f.began); n < calls*95/100 {
					t.Errorf("a slot every %s, %s to make a job ready, %d keys: %d calls, want %d", every, load, keys, n, calls)
				}
			}
		}
	}
}

// TestReadyForFewPermits checks that under a shared limit of calls in flight few jobs are kept ready while long
// calls run, and that permits do not wait.
func TestReadyForFewPermits(t *testing.T) {
	f := foresee(t, 2*time.Second, bucket.Rules{
		Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 100, Per: time.Second, Burst: 1}, Capacity: 1000, InFlight: 4},
		Shared: []bucket.Limit{{Name: "concurrent", InFlight: 2}},
	})
	for i := range 60 {
		f.submit(fmt.Sprint("k", i%20))
	}
	for range 20_000 {
		f.run(time.Millisecond)
		if n := f.s.Pipe.staged; n > 1 {
			t.Fatalf("%d jobs are ready for 2 permits of calls that take 2 s", n)
		}
	}
	if n := len(f.began); n != 20 {
		t.Errorf("%d calls began in 20 s, want 20", n)
	}
}

// TestReadyBehindLongCall checks that jobs that became ready behind their keys' calls, because these were
// expected to be short, keep no room from other keys, however long those calls take.
func TestReadyBehindLongCall(t *testing.T) {
	rate := bucket.Rate{Count: 10, Per: time.Second, Burst: 5}
	f := foresee(t, time.Minute, bucket.Rules{
		Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 100, Per: time.Second, Burst: 1}, Capacity: 1000, InFlight: 1},
		Shared: []bucket.Limit{{Name: "account", Rate: &rate}},
	})
	f.s.Pipe.callTime = 10 * time.Millisecond
	for i := range 10 {
		f.submit(fmt.Sprint("busy", i%5))
	}
	f.run(50 * time.Millisecond)
	for i := range 10 {
		f.submit(fmt.Sprint("other", i))
	}
	f.run(3 * time.Second)
	if n := len(f.began); n != 15 || f.s.Pipe.staged != 0 {
		t.Errorf("%d of 15 keys were called, and %d jobs are ready behind their calls", n, f.s.Pipe.staged)
	}
	made := f.made
	for i := range 50 {
		f.submit(fmt.Sprint("busy", i%5))
		f.run(time.Millisecond)
	}
	if f.made != made {
		t.Errorf("%d jobs were made ready behind calls that take longer than was thought", f.made-made)
	}
}
