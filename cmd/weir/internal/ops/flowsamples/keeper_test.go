package flowsamples

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"weir/dispatcher/desk"
	"weir/dispatcher/schedule"
)

// scene is a source with numbers from the test.
type scene struct {
	states map[string]desk.APIState
	keys   map[string][]schedule.KeyState
}

// APIs implements Source.
func (s *scene) APIs() (names []string) {
	for api := range s.states {
		names = append(names, api)
	}
	return names
}

// State implements Source.
func (s *scene) State(api string) (desk.APIState, error) { return s.states[api], nil }

// Keys implements Source.
func (s *scene) Keys(api string, limit int) ([]schedule.KeyState, error) {
	return s.keys[api][:min(limit, len(s.keys[api]))], nil
}

func keeper(s *scene, lines int) *Keeper {
	return New(Options{Source: s, Throttled: func(string) uint64 { return 7 }, Span: 4 * time.Second, Every: time.Second, Keys: 2, Lines: lines})
}

// TestPastOfABucket checks that the jobs that came are counted as the bucket counts them, and that the jobs that left
// are those no longer there, even if the bucket runs empty and begins again. No more parts are kept than asked for.
func TestPastOfABucket(t *testing.T) {
	s := &scene{states: map[string]desk.APIState{"pay": {API: "pay"}}, keys: map[string][]schedule.KeyState{}}
	k, at := keeper(s, 2), time.UnixMilli(0)
	want := []Part{}
	for i, step := range []struct {
		depth      int
		arrived    uint64
		came, left int64
	}{
		{depth: 5, arrived: 5},
		{depth: 7, arrived: 9, came: 4, left: 2},
		{depth: 0, left: 7},                            // empty, and no longer listed
		{depth: 3, arrived: 4, came: 4, left: 1},       // begins again
		{depth: 3, arrived: 4, came: 0, left: 0},       //
		{depth: 2, arrived: 104, came: 100, left: 101}, //
	} {
		s.keys["pay"] = nil
		if step.depth > 0 {
			s.keys["pay"] = []schedule.KeyState{{Key: "a", Depth: step.depth, Arrived: step.arrived}}
		}
		at = at.Add(time.Second)
		k.Look(at)
		if i > 0 {
			want = append(want, Part{At: at.UnixMilli(), Level: step.depth, Came: step.came, Left: step.left})
		}
	}
	want = want[len(want)-4:]
	if got := k.Key("pay", "a"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the past is\n%v, want\n%v", got, want)
	}
	if k.Key("pay", "b") != nil || k.API("other") != nil {
		t.Error("there is a past of what never was")
	}
}

// TestHandedOverIsNotLeft checks that jobs of a partition that another replica takes over have not left their buckets,
// and that none came when the partition returns.
func TestHandedOverIsNotLeft(t *testing.T) {
	full := []schedule.KeyState{{Key: "a", Depth: 120}} // the jobs were there when the partition was read
	s := &scene{states: map[string]desk.APIState{}, keys: map[string][]schedule.KeyState{}}
	k := keeper(s, 2)
	for i, owned := range []int{4, 4, 2, 2, 4, 4} {
		s.states["pay"] = desk.APIState{API: "pay", Owned: owned}
		s.keys["pay"] = nil
		if owned == 4 {
			s.keys["pay"] = full
		}
		k.Look(time.UnixMilli(int64(i+1) * 1000))
	}
	for _, p := range k.Key("pay", "a") {
		if p.Came != 0 || p.Left != 0 {
			t.Errorf("a part tells that %d came and %d left: %+v", p.Came, p.Left, p)
		}
	}
}

// TestPastOfAnAPI checks that a counter that fell has started again, and that an api that is gone is forgotten with its
// keys.
func TestPastOfAnAPI(t *testing.T) {
	s := &scene{states: map[string]desk.APIState{}, keys: map[string][]schedule.KeyState{"pay": {{Key: "a", Depth: 1}}}}
	k, at := keeper(s, 2), time.UnixMilli(0)
	for _, n := range []uint64{10, 15, 2} {
		s.states["pay"] = desk.APIState{API: "pay", Jobs: int(n), Arrived: n, Called: 2 * n}
		at = at.Add(time.Second)
		k.Look(at)
	}
	want := []Part{{At: 2000, Level: 15, Came: 5, Left: 10}, {At: 3000, Level: 2, Came: 2, Left: 4}}
	if got := k.API("pay"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the past is %v, want %v", got, want)
	}
	delete(s.states, "pay")
	k.Look(at.Add(time.Second))
	if len(k.apis)+len(k.keys) != 0 {
		t.Errorf("%d apis and %d keys are kept that are gone", len(k.apis), len(k.keys))
	}
}

// TestKeysAreBounded checks that beyond the bound the keys sampled longest ago are dropped, and also a key that was
// empty for the whole span.
func TestKeysAreBounded(t *testing.T) {
	s := &scene{states: map[string]desk.APIState{"pay": {API: "pay"}}, keys: map[string][]schedule.KeyState{}}
	k, at := keeper(s, 3), time.UnixMilli(0)
	for i := range 50 {
		s.keys["pay"] = []schedule.KeyState{{Key: fmt.Sprint("a", i), Depth: 9}, {Key: fmt.Sprint("b", i), Depth: 3}}
		at = at.Add(time.Second)
		k.Look(at)
		if len(k.keys) > 3 {
			t.Fatalf("%d keys are kept", len(k.keys))
		}
	}
	if k.keys[of{"pay", "a49"}] == nil || k.keys[of{"pay", "b49"}] == nil {
		t.Error("the deepest of now are not kept")
	}
	s.keys["pay"] = nil
	for range 6 {
		at = at.Add(time.Second)
		k.Look(at)
	}
	if len(k.keys) != 0 {
		t.Errorf("%d keys are kept that have rested", len(k.keys))
	}
}

// TestReplicasAddUp checks that parts that end at the same time are added, and that others stay as they are.
func TestReplicasAddUp(t *testing.T) {
	got := Add([]Part{{1, 1, 1, 1, 1}, {3, 1, 1, 1, 1}}, []Part{{2, 5, 5, 5, 5}, {3, 5, 5, 5, 5}})
	want := []Part{{1, 1, 1, 1, 1}, {2, 5, 5, 5, 5}, {3, 6, 6, 6, 6}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("they add up to %v, want %v", got, want)
	}
}

// slow is a source that takes a while to list its keys.
type slow struct {
	scene
	takes time.Duration
	looks []time.Time
}

// Keys implements Source.
func (s *slow) Keys(string, int) ([]schedule.KeyState, error) {
	s.looks = append(s.looks, time.Now())
	<-time.After(s.takes)
	return nil, nil
}

// TestLooksAreRare checks that a long look is followed by a pause three hundred times as long, and that a short one is
// followed by the next part.
func TestLooksAreRare(t *testing.T) {
	for takes, least := range map[time.Duration]time.Duration{time.Millisecond: time.Second, 100 * time.Millisecond: 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := &slow{scene: scene{states: map[string]desk.APIState{"pay": {API: "pay"}}}, takes: takes}
			k := New(Options{Source: s, Throttled: func(string) uint64 { return 0 }, Span: 4 * time.Second, Every: time.Second, Keys: 2, Lines: 2})
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			if err := k.Run(ctx); err != nil {
				t.Fatal(err)
			}
			if len(s.looks) < 3 {
				t.Fatalf("%d looks in five minutes", len(s.looks))
			}
			for i := 1; i < len(s.looks); i++ {
				if rest := s.looks[i].Sub(s.looks[i-1]); rest < least || rest > least+2*time.Second {
					t.Errorf("a look that took %v is followed by the next after %v, want about %v", takes, rest, least)
				}
			}
		})
	}
}
