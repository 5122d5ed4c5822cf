package schedule

import (
	"fmt"
	"hash"
	"hash/fnv"
	"testing"

	"weir/bucket"
)

// digest is a running sum over all that happens in a simulation, in order. A nil digest sums up nothing.
type digest struct{ hash.Hash64 }

func (d *digest) add(what ...any) {
	if d != nil {
		_, _ = fmt.Fprintln(d, what...) // a hash takes everything
	}
}

// effects adds the effects of a step, and the holds and the next time after it.
func (d *digest) effects(s *Schedule, now bucket.Micros, fx *Effects) {
	if d == nil {
		return
	}
	d.add(now, s.Holds.held, s.Holds.breaker.until, s.gate.opens, s.Next(now), fx.Unused)
	for _, jobs := range append([][]*Job{fx.Load, fx.Look, fx.Start, fx.Expire, fx.Cancel, fx.Recall, fx.Stale}, fx.asked...) {
		d.add(len(jobs))
		for _, j := range jobs {
			d.add(j.Seq, j.Phase, j.At, j.NotBefore)
		}
	}
	for _, q := range fx.Resumed {
		if q != nil {
			d.add(q.Key)
		}
	}
	for i := range fx.Asks {
		a := fx.Asks[i]
		if a.Line != nil {
			d.add(*a.Line)
			a.Line = nil
		}
		d.add(a)
	}
}

// recording is a test whose simulations are summed up.
type recording struct {
	testing.TB
	digest digest
}

// digestOf returns the digest of a test's simulations, nil if there is none.
func digestOf(t testing.TB) *digest {
	if r, ok := t.(*recording); ok {
		return &r.digest
	}
	return nil
}

// TestSeedsRepeat checks that the seed alone decides what happens in each simulation, so that a seed that fails once
// fails again.
func TestSeedsRepeat(t *testing.T) {
	alone := func(play func(m *simulation)) func(testing.TB, uint64) {
		return func(t testing.TB, seed uint64) { play(newSimulation(t, seed)) }
	}
	for name, of := range map[string]struct {
		seeds uint64
		play  func(t testing.TB, seed uint64)
	}{
		"Simulation":                      {20, alone(func(m *simulation) { m.play() })},
		"SimulationOfAStoreElsewhere":     {20, alone(func(m *simulation) { m.sendAway().play() })},
		"SimulationOfReuse":               {20, func(t testing.TB, seed uint64) { playReuse(t, seed) }},
		"SimulationOfCrashes":             {20, func(t testing.TB, seed uint64) { playCrashes(t, seed) }},
		"SimulationOfChanges":             {20, playChanges},
		"SimulationOfTurns":               {2, func(t testing.TB, seed uint64) { playTurns(t, seed, noMistake) }},
		"SimulationOfTurnsDisturbed":      {2, playDisturbed},
		"SimulationOfWeightsOverReplicas": {2, func(t testing.TB, seed uint64) { playWeights(t, seed, noMistake) }},
		"SimulationOfPriorities, key":     {3, func(t testing.TB, seed uint64) { playPriorities(t, seed, noSlip, false) }},
		"SimulationOfPriorities, shared":  {3, func(t testing.TB, seed uint64) { playPriorities(t, seed, noSlip, true) }},
		"NoIntentBeyondTheLimits":         {3, playWidth},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range of.seeds {
				sums := map[uint64]bool{}
				for range 2 {
					r := &recording{t, digest{fnv.New64a()}}
					of.play(r, seed)
					sums[r.digest.Sum64()] = true
				}
				if len(sums) > 1 {
					t.Errorf("seed %d had %d different courses in 2 runs", seed, len(sums))
				}
			}
		})
	}
}
