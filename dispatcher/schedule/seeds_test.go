package schedule

import (
	"fmt"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/internal/seeds"
)

// TestSimulation runs seeds through the pure core. One seed alone: go test ./dispatcher/schedule -run
// Simulation/seed=7.
func TestSimulation(t *testing.T) {
	for seed := range seeds.Of(10_000) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			newSimulation(t, seed).play()
		})
	}
}

// play runs a simulation to its end, and checks it.
func (m *simulation) play() {
	m.run(1+m.rnd.IntN(12), 1+m.rnd.IntN(120))
	m.rest()
	m.check()
}

// TestSimulationOfAStoreElsewhere runs seeds with a store that is a round trip away, has a clock of its own, and does
// not always answer. One seed alone: go test ./dispatcher/schedule -run Elsewhere/seed=7.
func TestSimulationOfAStoreElsewhere(t *testing.T) {
	for seed := range seeds.Of(10_000) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			newSimulation(t, seed).sendAway().play()
		})
	}
}

// steady is a simulation of one api at rate without shared limits or failures, whose loop wakes up to 2 ms late.
func steady(t testing.TB, rate bucket.Rate) *simulation {
	m := newSimulation(t, 1)
	m.late, m.outcome, m.words, m.tenants, m.outages = 2*time.Millisecond, 0, 0, 1, nil
	m.policy.Rules = bucket.Rules{Jitter: 5 * time.Millisecond, Key: bucket.KeyLimits{Rate: rate, Capacity: 1000, InFlight: 8}}
	m.openStore()
	m.s.Adopt(m.s.policy)
	m.s.Pipe.pace.MaxStaged, m.s.Pipe.pace.MaxCalls = 256, 256
	return m
}

// TestRateIsUsed checks the other half of the promise: weir is hardly ever under the rate while jobs wait.
func TestRateIsUsed(t *testing.T) {
	m := steady(t, bucket.Rate{Count: 100, Per: time.Second, Burst: 1})
	m.run(1, 500)
	m.rest()
	m.check()
	a := m.starts["t0.k0"]
	span := time.Duration(a[len(a)-1].At - a[0].At)
	if u := float64(len(a)-1) / (span.Seconds() * 100); u < 0.98 {
		t.Errorf("%.1f %% of the rate was used while jobs waited", 100*u)
	}
}

// TestHotKeyDelaysNobody checks that a key with 500 waiting jobs does not delay other keys.
func TestHotKeyDelaysNobody(t *testing.T) {
	m := steady(t, bucket.Rate{Count: 50, Per: time.Second, Burst: 1})
	for range 500 {
		m.seq++
		m.s.Push("hot", m.seq, m.part)
	}
	pushed := map[string]bucket.Micros{}
	for i := range 20 {
		key := fmt.Sprintf("cold-%d", i)
		m.after(time.Duration(i)*100*time.Millisecond, func() {
			m.seq++
			pushed[key] = m.now
			m.s.Push(key, m.seq, m.part)
		})
	}
	m.drain(520)
	for key, at := range pushed {
		waited := time.Duration(m.starts[key][0].At-int64(at)*1000) * time.Nanosecond
		if waited > 10*time.Millisecond {
			t.Errorf("%s waited %s behind the hot key", key, waited)
		}
	}
}
