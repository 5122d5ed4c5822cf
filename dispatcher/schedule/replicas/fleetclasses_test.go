package replicas

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/internal/seeds"
)

// prioritize gives the keys of a crew priorities. Each priority gets a key if there are enough; a replica may have keys
// of one priority only.
func prioritize(f *fleet, c crew) crew {
	for i := range c.keys {
		c.keys[i].of = bucket.Priorities[f.rnd.IntN(len(bucket.Priorities))]
		if i < len(bucket.Priorities) {
			c.keys[i].of = bucket.Priorities[i]
		}
		// A name's order tells nothing of the priority.
		c.keys[i].name = fmt.Sprintf("%s.%s", c.keys[i].name, c.keys[i].of)
	}
	return c
}

// offWeights returns for each priority by how many calls it was off its part at most, in any span of the grants. The
// priorities that have keys divide all calls: a small fleet may have no key of some priority.
func (f *fleet) offWeights(grants []fleetGrant) map[bucket.Priority]float64 {
	there := map[bucket.Priority]bool{}
	for _, k := range f.keys {
		there[k.of] = true
	}
	sum := 0.0
	for _, p := range bucket.Priorities {
		if there[p] {
			sum += float64(f.rules.Weights.Of(p))
		}
	}
	off := map[bucket.Priority]float64{}
	for _, p := range bucket.Priorities {
		if !there[p] {
			continue
		}
		part, made, low, high := float64(f.rules.Weights.Of(p))/sum, 0.0, 0.0, 0.0
		for i, g := range grants {
			if f.keys[g.key].of == p {
				made++
			}
			ahead := made - part*float64(i+1)
			low, high = min(low, ahead), max(high, ahead)
		}
		off[p] = high - low
	}
	return off
}

// playWeights plays one seed of replicas whose keys have jobs of several priorities, and returns what is wrong.
func playWeights(t testing.TB, seed uint64, plant mistake) (bad []string) {
	f := newFleet(t, seed)
	f.rules.Weights = someWeights(f.rnd)
	c := prioritize(f, crewOf(f.rnd, f.jobs(), f.rules.TenantUntil != ""))
	f.plant = plant
	f.man(c)
	f.run(f.now.Add(4 * time.Hour))
	bad = f.neverOver()
	for _, k := range f.keys {
		if k.left > 0 {
			bad = append(bad, fmt.Sprintf("%d jobs of %s were never called", k.left, k.name))
		}
	}
	grants := f.contended(c.jobs)
	for p, off := range f.offWeights(grants) {
		// On one machine a priority may be off by one call in each direction, so by two. Each replica may have asked
		// for one more call of its own before it knew what waits elsewhere.
		if most := 4 + float64(len(f.replicas)); off > most {
			bad = append(bad, fmt.Sprintf("%s jobs were %.2f calls off their part, in %d calls", p, off, len(grants)))
		}
	}
	return bad
}

// TestSimulationOfWeightsOverReplicas runs seeds of fleets whose replicas share a rate that is used up. While all keys
// wait, priorities are called as their weights say, wherever their keys are.
func TestSimulationOfWeightsOverReplicas(t *testing.T) {
	for seed := range seeds.Of(60) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			for _, bad := range playWeights(t, seed, noMistake) {
				t.Error(bad)
			}
		})
	}
}

// TestSimulationOfWeightsOverReplicasFindsMistakes checks that the simulation catches each planted mistake.
func TestSimulationOfWeightsOverReplicasFindsMistakes(t *testing.T) {
	for plant, name := range map[mistake]string{
		noLines: "replicas do not say what waits", sameLines: "replicas do not say which priorities wait", ownPriorities: "a replica does not learn how much of its priorities is elsewhere",
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				if bad := playWeights(t, seed, plant); len(bad) > 0 {
					t.Logf("seed %d: %s", seed, bad[0])
					return
				}
			}
			t.Error("20 seeds found nothing")
		})
	}
}

// plain makes a line say nothing of priorities.
func plain(l *bucket.Line) *bucket.Line {
	said := *l
	said.Tenants = slices.Clone(l.Tenants)
	for i := range said.Tenants {
		said.Tenants[i].Priority = bucket.Normal
	}
	return &said
}

// fleetGrant is a slot that the store gave.
type fleetGrant struct {
	at  bucket.Micros
	key string
}

// neverOver checks that the calls of all replicas together are within the limit.
func (f *fleet) neverOver() (bad []string) {
	if v := bucket.Check(f.arrivals, bucket.Expectation{Limit: f.rules.Shared[0], Jitter: f.rules.Jitter}); v.Outcome == bucket.Fail {
		bad = append(bad, fmt.Sprint("over the limit: ", v))
	}
	return bad
}
