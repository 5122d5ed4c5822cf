package replicas

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"weir/dispatcher/internal/seeds"
)

// playTurns plays one seed, and the same keys on one machine, and returns what is wrong.
func playTurns(t testing.TB, seed uint64, plant mistake) (bad []string) {
	f, alone := newFleet(t, seed), newFleet(t, seed)
	c := crewOf(f.rnd, f.jobs(), f.rules.TenantUntil != "")
	f.plant = plant
	f.man(c)
	f.run(f.now.Add(time.Hour))
	single := c
	single.replicas = 1
	alone.man(single)
	alone.run(alone.now.Add(time.Hour))

	bad = f.neverOver()
	for _, k := range f.keys {
		if k.left > 0 {
			bad = append(bad, fmt.Sprintf("%d jobs of %s were never called", k.left, k.name))
		}
	}
	grants, mine := f.contended(c.jobs), alone.contended(c.jobs)
	off, on, sum := f.off(grants), alone.off(mine), 0.0
	for _, name := range slices.Sorted(maps.Keys(off)) { // sums of floats depend on their order
		if sum += off[name] - on[name]; off[name] > on[name]+2.25 {
			bad = append(bad, fmt.Sprintf("%s was %.2f calls off its share, %.2f on one machine", name, off[name], on[name]))
		}
	}
	if sum /= float64(len(off)); sum > 1 {
		bad = append(bad, fmt.Sprintf("keys were on the average %.2f calls further off their shares than on one machine", sum))
	}
	if used, usual := f.used(grants), alone.used(mine); used < 0.97*usual {
		bad = append(bad, fmt.Sprintf("%.1f %% of the rate was used, %.1f %% on one machine", 100*used, 100*usual))
	}
	if len(bad) > 0 {
		bad = append(bad, fmt.Sprintf("%d replicas, %d keys, %+v, way %s, tenants %q", len(f.replicas), len(f.keys), *f.rules.Shared[0].Rate, f.way, f.rules.TenantUntil))
	}
	return bad
}

// TestSimulationOfTurns runs seeds of fleets whose replicas share a rate that is used up. In any span in which all keys
// wait, keys are at most a call further off their shares on average than on one machine, and no key more than two
// calls. As much of the rate is used as on one machine.
func TestSimulationOfTurns(t *testing.T) {
	for seed := range seeds.Of(60) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			for _, bad := range playTurns(t, seed, noMistake) {
				t.Error(bad)
			}
		})
	}
}

// TestSimulationOfTurnsFindsMistakes checks that the simulation catches each planted mistake.
func TestSimulationOfTurnsFindsMistakes(t *testing.T) {
	for plant, name := range map[mistake]string{
		noLines: "replicas do not say what waits", evenLines: "every replica says that one key waits", ownTenants: "replicas do not know of their tenants' keys elsewhere",
		sameNames: "all replicas have one name",
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				if bad := playTurns(t, seed, plant); len(bad) > 0 {
					t.Logf("seed %d: %s", seed, bad[0])
					return
				}
			}
			t.Error("20 seeds found nothing")
		})
	}
}

// playDisturbed plays one seed of a fleet that is disturbed.
func playDisturbed(t testing.TB, seed uint64) {
	f := newFleet(t, seed)
	c := crewOf(f.rnd, f.jobs(), f.rules.TenantUntil != "")
	f.losses, f.slow = []int{0, 200, 40}[f.rnd.IntN(3)], []int{0, 30, 8}[f.rnd.IntN(3)]
	f.man(c)
	each := f.rules.Interval(*f.rules.Shared[0].Rate).Duration()
	f.run(f.now.Add(each * time.Duration(f.rnd.IntN(len(c.keys)*c.jobs/2))))
	f.replicas[0].dead = true
	died := f.now
	away := time.Duration(0) // that late and lost messages keep a replica away
	if f.slow > 0 {
		away = 60 * time.Millisecond
	}
	if f.losses > 0 {
		worst := slices.MaxFunc(f.replicas, func(a, b *replica) int { return cmp.Compare(a.worst, b.worst) }).worst
		away += time.Duration(max(1, worst)) * 300 * time.Millisecond
	}
	for key, off := range f.off(f.contended(c.jobs)) {
		if off > 2.75+float64(away)/float64(each) {
			t.Errorf("%s was %.2f calls off its share while all lived", key, off)
		}
	}
	f.run(f.now.Add(time.Hour))
	for _, bad := range f.neverOver() {
		t.Error(bad)
	}
	for _, k := range f.keys {
		if k.replica != 0 && k.left > 0 {
			t.Errorf("%d jobs of %s were never called", k.left, k.name)
		}
	}
	slices.SortStableFunc(f.grants, func(a, b fleetGrant) int { return cmp.Compare(a.at, b.at) })
	quiet := time.Second
	if f.losses > 0 {
		quiet *= 3 // a replica that hears nothing asks less and less often, and may be the last with jobs
	}
	for i := 1; i < len(f.grants); i++ {
		if gap := f.grants[i-1].at.Until(f.grants[i].at); gap > each+quiet {
			t.Errorf("no slot was given for %s, %s after a replica died", gap, died.Until(f.grants[i-1].at))
		}
	}
}

// TestSimulationOfTurnsDisturbed runs seeds of fleets that lose messages, whose round trips to the store are slow at
// times, and in which a replica dies. While all replicas live, keys are further off their shares only by the calls that
// pass while a message is late or lost. The other replicas go on within a second after the death, and no limit is
// exceeded.
func TestSimulationOfTurnsDisturbed(t *testing.T) {
	for seed := range seeds.Of(60) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			playDisturbed(t, seed)
		})
	}
}
