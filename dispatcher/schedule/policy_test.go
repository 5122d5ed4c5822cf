package schedule

import (
	"fmt"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/internal/seeds"
)

// epoch is a time with the same rules.
type epoch struct {
	from  bucket.Micros
	rules bucket.Rules
}

// change puts other rates in force, as a dispatcher does.
func (m *simulation) change() epoch {
	rules := m.policy.Rules
	rules.Key.Rate.Count = 1 + m.rnd.Int64N(200)
	rate := bucket.Rate{Count: 1 + m.rnd.Int64N(300), Per: time.Second, Burst: 1}
	rules.Shared = []bucket.Limit{{Name: "account", Rate: &rate}}
	if m.rnd.IntN(2) == 0 {
		other := bucket.Rate{Count: 1 << 20, Per: time.Second, Burst: 1 << 20}
		rules.Shared = []bucket.Limit{{Name: "other", Rate: &other}, rules.Shared[0]}
	}
	if err := m.store.Apply(rules); err != nil {
		m.t.Fatal(err)
	}
	policy := *m.policy
	policy.Rules = rules
	m.policy = &policy
	clear(m.grudges)
	m.s.Adopt(m.policy)
	for _, q := range m.s.agenda.all {
		m.s.Rebind(q, m.now)
	}
	return epoch{m.now, rules}
}

// checkEpochs checks the calls of every epoch against its own rates, once the slots granted before are past, and
// all of them against the highest rates.
func (m *simulation) checkEpochs(epochs []epoch) {
	settled := LeastAhead + m.s.Pipe.pace.GrantTTL + m.busy + 2*m.late
	for i, e := range epochs {
		until := Never
		if i+1 < len(epochs) {
			until = epochs[i+1].from
		}
		within := func(all []bucket.Arrival) (some []bucket.Arrival) {
			for _, a := range all {
				if at := bucket.Micros(a.At / 1000); at > e.from.Add(settled) && at <= until {
					some = append(some, a)
				}
			}
			return some
		}
		shared := e.rules.Shared[len(e.rules.Shared)-1]
		if v := bucket.Check(within(m.shared["account"]), m.claim(shared)); v.Outcome == bucket.Fail {
			m.t.Fatalf("epoch %d, account %d/s: %s", i, shared.Rate.Count, v)
		}
		for key, arrivals := range m.starts {
			own := bucket.Limit{Name: "rate", Rate: &e.rules.Key.Rate}
			if v := bucket.Check(within(arrivals), bucket.Expectation{Limit: own, Jitter: e.rules.Jitter}); v.Outcome == bucket.Fail {
				m.t.Fatalf("epoch %d, %d/s, key %s: %s", i, own.Rate.Count, key, v)
			}
		}
	}
}

// playChanges plays one seed of rules that change.
func playChanges(t testing.TB, seed uint64) {
	m := newSimulation(t, seed)
	m.policy.Rules.Key.Rate.Burst = 1
	epochs := []epoch{m.change()}
	for range 1 + m.rnd.IntN(4) {
		m.after(m.upTo(2*time.Second), func() { epochs = append(epochs, m.change()) })
	}
	m.run(1+m.rnd.IntN(12), 1+m.rnd.IntN(120))
	m.checkEpochs(epochs)
}

// TestSimulationOfChanges runs seeds in which the rules change while jobs wait, are made ready, have slots and are
// called. One seed alone: go test ./dispatcher/schedule -run OfChanges/seed=7.
func TestSimulationOfChanges(t *testing.T) {
	for seed := range seeds.Of(3_000) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			playChanges(t, seed)
		})
	}
}

// TestRaisedRateHelpsAtOnce checks that a key whose next call was tomorrow is called within the new rate's
// interval.
func TestRaisedRateHelpsAtOnce(t *testing.T) {
	m := steady(t, bucket.Rate{Count: 1, Per: 24 * time.Hour, Burst: 1})
	for range 10 {
		m.seq++
		m.accepted["k"] = append(m.accepted["k"], m.seq)
		m.s.Push("k", m.seq, m.part)
	}
	m.drain(1)
	raised := m.now
	m.policy.Rules.Key.Rate.Per = time.Second
	rules := m.policy.Rules
	if err := m.store.Apply(rules); err != nil {
		t.Fatal(err)
	}
	m.s.Adopt(&Policy{Rules: rules})
	for _, q := range m.s.agenda.all {
		m.s.Rebind(q, m.now)
	}
	m.drain(10)
	if took := raised.Until(m.now); took > 11*time.Second {
		t.Errorf("nine calls at 1/s took %s", took)
	}
}
