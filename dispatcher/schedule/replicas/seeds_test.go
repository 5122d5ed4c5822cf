package replicas

import (
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"math/rand/v2"
	"testing"

	"weir/bucket"
	"weir/dispatcher/schedule"
)

// event is what happens at a time.
type event struct {
	at bucket.Micros
	do func()
}

// events is a heap, ordered by time.
type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }

// Push implements heap.Interface.
func (e *events) Push(x any) { *e = append(*e, x.(event)) }

// Pop implements heap.Interface.
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

var errLost = errors.New("lost on the way")

// someWeights draws the weights of the priorities.
func someWeights(rnd *rand.Rand) bucket.Weights {
	return []bucket.Weights{
		{}, {High: 1, Normal: 1, Low: 1}, {High: 100, Normal: 10, Low: 1}, {High: 7, Normal: 5, Low: 3}, {High: 1, Normal: 2, Low: 8},
	}[rnd.IntN(5)]
}

// digest is a running sum over all that happens in a simulation, in order. A nil digest sums up nothing.
type digest struct{ hash.Hash64 }

func (d *digest) add(what ...any) {
	if d != nil {
		_, _ = fmt.Fprintln(d, what...) // a hash takes everything
	}
}

// effects adds the effects of a step, and the next time after it.
func (d *digest) effects(s *schedule.Schedule, now bucket.Micros, fx *schedule.Effects) {
	if d == nil {
		return
	}
	d.add(now, s.Next(now), fx.Unused)
	for _, jobs := range [][]*schedule.Job{fx.Load, fx.Look, fx.Start, fx.Expire, fx.Cancel, fx.Recall, fx.Stale} {
		d.add(len(jobs))
		for _, j := range jobs {
			d.add(j.Seq, j.Phase, j.At, j.NotBefore)
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
	for name, of := range map[string]struct {
		seeds uint64
		play  func(t testing.TB, seed uint64)
	}{
		"SimulationOfTurns":               {2, func(t testing.TB, seed uint64) { playTurns(t, seed, noMistake) }},
		"SimulationOfTurnsDisturbed":      {2, playDisturbed},
		"SimulationOfWeightsOverReplicas": {2, func(t testing.TB, seed uint64) { playWeights(t, seed, noMistake) }},
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
