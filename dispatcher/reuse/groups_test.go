package reuse

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func leads(g *Groups[string], j string) bool {
	_, leads, _ := g.Held(j)
	return leads
}

func TestGroups(t *testing.T) {
	t.Parallel()
	var g Groups[string]
	s := sum(1)
	if _, leads := g.Leader(s); leads {
		t.Error("a request that no job makes has a leader")
	}
	g.Wait("early", s)
	if _, leads := g.Leader(s); leads {
		t.Error("a job that waits leads")
	}
	if !g.Lead("first", s) || g.Lead("second", s) {
		t.Error("there is one leader")
	}
	if !leads(&g, "first") || leads(&g, "second") || leads(&g, "early") || leads(&g, "unknown") {
		t.Error("the first leads, and no other")
	}
	if !g.Lead("first", s) {
		t.Error("a leader that is made ready again leads no more")
	}
	g.Wait("second", s)
	g.Wait("other", sum(2))
	if waited := g.Leave("second"); len(waited) != 0 {
		t.Errorf("%v waited for a job that did not lead", waited)
	}
	g.Wait("second", s)
	waited := g.Leave("first")
	slices.Sort(waited)
	if !slices.Equal(waited, []string{"early", "second"}) {
		t.Errorf("%v waited", waited)
	}
	if of, leads, held := g.Held("second"); !held || leads || of != s || g.Waiting() != 0 {
		t.Errorf("those that waited are held: %v, %d wait for a leader", held, g.Waiting())
	}
	if !g.Lead("second", s) || g.Waiting() != 1 {
		t.Error("the next one does not lead")
	}
	for _, j := range g.All() {
		g.Leave(j)
	}
	if len(g.by)+len(g.of) != 0 || g.Waiting() != 0 {
		t.Errorf("left: %v, %v", g.by, g.of)
	}
	if g.Leave("first") != nil {
		t.Error("a job that was never held had others wait")
	}
}

// TestGroupsHoldEachOnce compares random steps with a plain model.
func TestGroupsHoldEachOnce(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var g Groups[int]
	leader, waits := map[Sum]int{}, map[int]Sum{}
	for range 20_000 {
		j := random.IntN(20)
		s := sum(j % 4)
		led, leads := leader[s]
		switch random.IntN(3) {
		case 0:
			if got := g.Lead(j, s); got != (!leads || led == j) {
				t.Fatalf("job %d leads: %v, with leader %d, %v", j, got, led, leads)
			} else if got {
				leader[s] = j
				delete(waits, j)
			} else {
				waits[j] = s // enters, and has to wait or leave
				g.Wait(j, s)
			}
		case 1:
			if leads && led == j {
				continue
			}
			g.Wait(j, s)
			waits[j] = s
		default:
			want := 0
			if leads && led == j {
				delete(leader, s)
				for _, of := range waits {
					if of == s {
						want++
					}
				}
			}
			delete(waits, j)
			if got := g.Leave(j); len(got) != want {
				t.Fatalf("job %d left %v, want %d", j, got, want)
			}
		}
		joined := 0
		for _, of := range waits {
			if _, leads := leader[of]; leads {
				joined++
			}
		}
		if g.Waiting() != joined || len(g.of) != len(waits)+len(leader) {
			t.Fatalf("%d wait and %d are held, want %d, and %d with %d leaders", g.Waiting(), len(g.of), joined, len(waits), len(leader))
		}
	}
}

// TestGroupsAreBounded: a job beyond the bound neither leads nor waits.
func TestGroupsAreBounded(t *testing.T) {
	t.Parallel()
	var g Groups[int]
	for i := range mostHeld {
		if !g.Wait(i, sum(i%100)) {
			t.Fatalf("job %d is not held", i)
		}
	}
	if g.Wait(mostHeld, sum(1)) || g.Lead(mostHeld, sum(1)) || len(g.of) != mostHeld {
		t.Errorf("%d jobs are held", len(g.of))
	}
	if !g.Lead(1, sum(1)) || !g.Wait(2, sum(2)) {
		t.Error("a job that is held must be able to lead, and to wait on")
	}
	if g.Leave(3); !g.Lead(mostHeld, sum(3)) {
		t.Error("there is room again")
	}
}
