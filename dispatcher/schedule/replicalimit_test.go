package schedule

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/internal/seeds"
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

// TestReplicaLimits runs seeds with limits of the process beside those of a store, which is in the process or elsewhere.
// No call exceeds any of them, and every job ends. One seed alone: go test ./dispatcher/schedule -run
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
	if at, by := d.replica.opens(d.now, d.onWay()); at > d.now {
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
	for _, q := range d.byKey {
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
