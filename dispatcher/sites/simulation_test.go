package sites

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/internal/seeds"
)

// mistake is a mistake that a test plants in the order of a move, or in what a site or a mover does.
type mistake string

const (
	none              mistake = ""
	raisesFirst       mistake = "raises before it lowers"
	raisesBeforeAwait mistake = "raises before it awaits"
	checksNothing     mistake = "does not check the sum"
	awaitsNothing     mistake = "awaits nothing"
	awaitsStored      mistake = "awaits that a share is stored, not that it is in force"
	awaitsOnlyLowered mistake = "awaits only the sites that it has lowered"
	awaitsOnlyOne     mistake = "awaits only the first site"
	ignoresWindows    mistake = "does not wait until windows have passed"
	ignoresUse        mistake = "does not ask what is in use"
	ignoresRunning    mistake = "does not count calls in flight"
	claimsNothing     mistake = "reads without a claim"
	claimsAfterwards  mistake = "reads the shares before it has claimed all sites, and claims them again"
	confirmsNothing   mistake = "confirms nothing before it raises"
	setsAnyway        mistake = "sets a share although something was written since the claim"
	skipsUnreachable  mistake = "leaves out a site that does not answer"
	believesInSilence mistake = "takes a site that does not answer for lowered"
	roundsUp          mistake = "rounds limits up"
)

// mistakes are all planted mistakes.
var mistakes = []mistake{
	raisesFirst, raisesBeforeAwait, checksNothing, awaitsNothing, awaitsStored, awaitsOnlyLowered, awaitsOnlyOne, ignoresWindows, ignoresUse,
	ignoresRunning, claimsNothing, claimsAfterwards, confirmsNothing, setsAnyway, skipsUnreachable, believesInSilence,
	roundsUp,
}

// order returns the order of a move with the mistake.
func (m mistake) order() []step {
	switch m {
	case raisesFirst:
		return []step{claim, check, confirm, raise, lower, await}
	case raisesBeforeAwait:
		return []step{claim, check, lower, confirm, raise, await}
	case checksNothing:
		return []step{claim, unchecked, lower, await, confirm, raise}
	case awaitsOnlyLowered:
		return awaitingLowered()
	case awaitsOnlyOne:
		return []step{claim, check, lower, awaitOne, confirm, raise}
	case claimsAfterwards:
		return []step{claim, check, reclaim, lower, await, confirm, raise}
	case confirmsNothing:
		return []step{claim, check, lower, await, raise}
	default:
		return order()
	}
}

// unchecked is check without the check of the sum.
func unchecked(_ context.Context, r *run) error {
	for name, c := range r.claims {
		r.after[name] = c.Share
		if percent, wanted := r.Target[name]; wanted {
			r.after[name] = percent
		}
	}
	return nil
}

// awaitingLowered is an order that awaits those sites only that the move has lowered.
func awaitingLowered() []step {
	before := map[string]int64{}
	note := func(_ context.Context, r *run) error {
		before = r.shares()
		return nil
	}
	awaitLowered := func(ctx context.Context, r *run) error {
		for _, name := range r.names() {
			if c := r.claims[name]; c.Share < before[name] {
				if err := r.Sites[name].Await(ctx, c); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return []step{claim, check, note, lower, awaitLowered, confirm, raise}
}

// awaitOne is await for one site.
func awaitOne(ctx context.Context, r *run) error {
	name := r.names()[0]
	return r.Sites[name].Await(ctx, r.claims[name])
}

// reclaim takes the claims of the sites anew, some seconds later, and keeps what it knew of their shares.
func reclaim(ctx context.Context, r *run) error {
	for _, name := range r.names() {
		of := r.Sites[name].(link)
		if err := of.m.wait(of.w.upTo(4 * time.Second)); err != nil {
			return err
		}
		c, err := of.Claim(ctx)
		if err != nil {
			return err
		}
		known := r.claims[name]
		known.Revision = c.Revision
		r.claims[name] = known
	}
	return nil
}

// roundedUp returns the rules of a site that rounds up.
func (w *world) roundedUp(percent int64) bucket.Rules {
	rules, _ := w.rules(percent)
	for i := range rules.Shared {
		l, whole := &rules.Shared[i], &w.whole[i]
		up := func(n int64) int64 { return (n*percent + 99) / 100 }
		switch l.Kind() {
		case bucket.KindRate:
			rate := *l.Rate
			if rate.Counts == bucket.ByWindow {
				rate.Count = up(whole.Rate.Count)
			}
			rate.Burst, l.Rate = up(whole.Rate.Burst), &rate
		case bucket.KindQuota:
			quota := *l.Quota
			quota.Count, l.Quota = up(whole.Quota.Count), &quota
		case bucket.KindInFlight:
			l.InFlight = up(whole.InFlight)
		case bucket.KindBudget:
		}
	}
	return rules
}

// play runs one seed and returns the world at its end.
func play(seed uint64, plant mistake) *world {
	w := newWorld(seed, plant)
	lasts := time.Duration(40+w.rnd.IntN(60)) * time.Second
	for range 2 + w.rnd.IntN(4) {
		w.after(w.upTo(lasts*3/4), w.move)
	}
	w.run(lasts)
	return w
}

// TestSimulation runs seeds of two to five sites with clocks that drift, links that are cut, and movers that overlap
// and die. The vendor counts all calls: no window of no limit may exceed the limit. One seed alone: go test
// ./dispatcher/sites -run Simulation/seed=7.
func TestSimulation(t *testing.T) {
	calls, moves, raised, failed := 0, 0, 0, map[string]int{}
	for seed := range seeds.Of(10_000) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			w := play(seed, none)
			if over := w.breach(); over != "" {
				t.Errorf("%s, at the end with %s", over, w.names())
			}
			if sum := w.sum(); sum > bucket.WholeShare {
				t.Errorf("the shares are %d%% together: %s", sum, w.names())
			}
			calls, moves, raised = calls+w.calls, moves+w.moves, raised+w.raised
			for why, n := range w.failed {
				failed[why] += n
			}
		})
	}
	t.Logf("%d calls; %d moves ended, %v failed, %d shares were raised", calls, moves, failed, raised)
	if raised == 0 || moves == 0 || len(failed) < 4 {
		t.Error("the seeds move nothing")
	}
}

// TestMistakesAreCaught checks that the simulation finds each planted mistake within a few hundred seeds.
func TestMistakesAreCaught(t *testing.T) {
	for _, plant := range mistakes {
		t.Run(string(plant), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(mostSeeds) {
				if w := play(seed, plant); w.breach() != "" {
					t.Logf("seed %d: %s", seed, w.breach())
					return
				}
			}
			t.Errorf("%d seeds did not catch it", mostSeeds)
		})
	}
}

// mostSeeds is how many seeds a mistake may take until it is caught.
const mostSeeds = 2000

// TestSeedsRepeat checks that the seed alone decides what happens.
func TestSeedsRepeat(t *testing.T) {
	for seed := range uint64(10) {
		sums := map[uint64]bool{}
		for range 2 {
			w, h := play(seed, none), fnv.New64a()
			for _, l := range w.whole {
				_, _ = fmt.Fprintln(h, l.Name, w.came[l.Name], w.names())
			}
			sums[h.Sum64()] = true
		}
		if len(sums) > 1 {
			t.Errorf("seed %d does not repeat", seed)
		}
	}
}

// TestMoveRefuses checks what a move refuses before it changes anything.
func TestMoveRefuses(t *testing.T) {
	known := []string{"eu", "us"}
	for name, of := range map[string]struct {
		sites  []string
		target map[string]int64
	}{
		"too much":        {known, map[string]int64{"eu": 70}},
		"a site missing":  {known[:1], map[string]int64{"eu": 40}},
		"an unknown site": {known, map[string]int64{"ap": 10}},
		"nothing left":    {known, map[string]int64{"eu": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			to := map[string]Site{}
			var set []string
			for _, s := range of.sites {
				to[s] = fixed{s, &set}
			}
			m := Move{Sites: to, Target: of.target}
			if _, err := m.Run(context.Background()); err == nil || len(set) > 0 {
				t.Errorf("err %v, set %v", err, set)
			}
		})
	}
}

// fixed is a site with half of the account.
type fixed struct {
	name string
	set  *[]string
}

func (f fixed) Claim(context.Context) (Claim, error) {
	return Claim{Share: 50, Sites: []string{"eu", "us"}}, nil
}

func (f fixed) Check(_ Claim, percent int64) error {
	_, err := (bucket.Limit{Name: "n", InFlight: 10}).Part(percent)
	return err
}

func (f fixed) Set(_ context.Context, c Claim, percent int64) (Claim, error) {
	*f.set = append(*f.set, f.name)
	c.Share = percent
	return c, nil
}

func (f fixed) Await(context.Context, Claim) error   { return nil }
func (f fixed) Confirm(context.Context, Claim) error { return nil }

// TestOrder checks that all sites are lowered before the first is awaited, and all awaited before the first is raised.
func TestOrder(t *testing.T) {
	var set []string
	var steps []Step
	m := Move{Sites: map[string]Site{"eu": fixed{"eu", &set}, "us": fixed{"us", &set}}, Target: map[string]int64{"eu": 60, "us": 40}, Tell: func(p Progress) {
		steps = append(steps, p.Step)
	}}
	after, err := m.Run(context.Background())
	if err != nil || !slices.Equal(set, []string{"us", "eu"}) || after["eu"] != 60 || after["us"] != 40 {
		t.Errorf("set %v, shares %v, %v", set, after, err)
	}
	if !slices.Equal(steps, []Step{Lowered, Awaited, Awaited, Raised}) {
		t.Errorf("steps %v", steps)
	}
}
