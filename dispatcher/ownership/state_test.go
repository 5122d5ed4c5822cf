package ownership

import (
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"weir/bucket/lease"
	"weir/dispatcher/internal/seeds"

	"pgregory.net/rapid"
)

// TestSimulationOfOwnership checks that, whatever happens to replicas, clocks and messages, no two replicas may
// start calls of a partition, and that in the end all partitions are divided evenly.
func TestSimulationOfOwnership(t *testing.T) {
	for seed := range seeds.Of(400) {
		w := newWorld(t, seed)
		quiet := w.now.Add(95 * time.Second)
		for at := 5 * time.Second; at < 60*time.Second; at += w.upTo(8 * time.Second) {
			w.after(at, w.trouble)
		}
		w.after(70*time.Second, func() { w.calm = true })
		w.run(quiet)
		w.settled(seed)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// settled checks the state at the end.
func (w *world) settled(seed uint64) {
	for api, n := range w.apis {
		open := map[string]int{}
		for i := range n {
			for _, r := range w.all {
				if r.mayCall(lease.PartitionID{API: api, Number: i}) {
					open[r.name]++
				}
			}
		}
		sum := 0
		for name, k := range open {
			sum += k
			if k > (n+len(w.all)-1)/len(w.all) {
				w.t.Errorf("seed %d: %s has %d of %d partitions of %s, and there are %d replicas", seed, name, k, n, api, len(w.all))
			}
		}
		if sum != n {
			w.t.Errorf("seed %d: of %d partitions of %s %d are open: %v", seed, n, api, sum, open)
		}
	}
}

// trouble does something to a replica or the registry.
func (w *world) trouble() {
	r := w.all[w.rnd.IntN(len(w.all))]
	switch w.rnd.IntN(6) {
	case 0, 1: // stopped, for longer than its lease perhaps
		if !r.asleep {
			r.asleep = true
			life := r.life
			w.after(w.upTo(15*time.Second), func() {
				if r.life == life {
					r.asleep = false
					for _, do := range r.paused {
						do()
					}
					r.paused = nil
				}
			})
		}
	case 2: // killed
		r.start()
	case 3: // stopped in order: it leaves first
		if r.o != nil {
			o := r.o
			r.leaving = true
			o.leave()
			r.run(6*time.Second, func() {
				if r.o == o && o.empty() {
					r.write(r.session, nil, r.revision, func(uint64, error) {})
				}
				r.start()
			})
		}
	case 4: // the registry elects a leader
		w.down = true
		w.after(w.upTo(9*time.Second), func() { w.down = false })
	case 5:
		if r.o != nil {
			r.watch()
		}
	}
}

// owning is a replica's ownership of the only partition, claimed at revision 220 in place of 180.
func owning(t *testing.T, now time.Time) (o *state, p lease.PartitionID) {
	t.Helper()
	o, p = newState("me", "weir-0", now), lease.PartitionID{API: "a"}
	o.dispatches(map[string]int{"a": 1})
	o.watchBegins()
	me := lease.Member{Instance: "weir-0", Partitions: map[string]int{"a": 1}}
	o.see(lease.Sighting{Session: "me", Member: &me, Revision: 170}, now)
	o.see(lease.Sighting{Partition: &p, Revision: 180}, now)
	o.see(lease.Sighting{}, now)
	wants(t, o.plan(now), actionClaim)
	o.claimed(p, 220, nil, now)
	actions := o.plan(now)
	wants(t, actions, actionOpen)
	o.opened(actions[0], nil, now)
	wants(t, o.plan(now))
	return o, p
}

func wants(t *testing.T, got []action, want ...actionKind) {
	t.Helper()
	kinds := make([]actionKind, len(got))
	for i, d := range got {
		kinds[i] = d.do
	}
	if !slices.Equal(kinds, want) {
		t.Fatalf("it does %v, want %v", kinds, want)
	}
}

// TestClaimThatTheRegistryLost checks that if the registry lost its last writes and another replica has claimed
// the partition since, this one drops it, whatever the revision of that claim, and however it learns of it.
func TestClaimThatTheRegistryLost(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for _, revision := range []uint64{110, 190, 220, 230} {
		o, p := owning(t, now)
		o.watchBegins()
		wants(t, o.plan(now))
		o.see(lease.Sighting{Partition: &p, Owner: "other", Revision: revision}, now)
		o.see(lease.Sighting{}, now)
		wants(t, o.plan(now), actionLose)
	}
	for _, revision := range []uint64{190, 220, 230} { // by a watch that goes on
		o, p := owning(t, now)
		o.see(lease.Sighting{Partition: &p, Owner: "other", Revision: revision}, now)
		wants(t, o.plan(now), actionLose)
	}
	// A watch from a replica that lags shows an older claim, and its own before it says that it has shown all.
	lagging, part := owning(t, now)
	lagging.watchBegins()
	lagging.see(lease.Sighting{Partition: &part, Owner: "before", Revision: 150}, now)
	wants(t, lagging.plan(now))
	lagging.see(lease.Sighting{Partition: &part, Owner: "me", Revision: 220}, now)
	lagging.see(lease.Sighting{}, now)
	wants(t, lagging.plan(now))
	// What was written before its claim, and is seen after it, means nothing.
	o, p := owning(t, now)
	o.see(lease.Sighting{Partition: &p, Owner: "before", Revision: 150}, now)
	o.see(lease.Sighting{Partition: &p, Revision: 180}, now)
	wants(t, o.plan(now))
}

// TestWatchThatLagsGivesNothing checks that a claim of this replica that a new watch shows is not believed
// before the registry's leader has confirmed it: it may have been released since.
func TestWatchThatLagsGivesNothing(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	o, p := owning(t, now)
	o.dispatches(map[string]int{"a": 1})
	o.targets = map[lease.PartitionID]string{p: "other"}
	actions := o.plan(now)
	wants(t, actions, actionClose)
	o.closed(actions[0], nil, now)
	wants(t, o.plan(now), actionRelease)
	o.watchBegins()
	o.released(p, 240, nil, now)
	o.see(lease.Sighting{Partition: &p, Owner: "me", Revision: 220}, now)
	if got := o.claims[p]; got != (ownerClaim{"", 240}) {
		t.Errorf("what it has just written is %+v", got)
	}
	o.watchBegins()
	o.see(lease.Sighting{Partition: &p, Owner: "me", Revision: 220}, now)
	o.see(lease.Sighting{}, now)
	actions = o.plan(now)
	wants(t, actions, actionClaim)
	if actions[0].revision != 220 {
		t.Errorf("it claims in the place of revision %d, want 220", actions[0].revision)
	}
}

// TestCleanIsWhatWasReleased checks that a partition counts as clean, all its calls ended, only if its owner
// released it.
func TestCleanIsWhatWasReleased(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	p := lease.PartitionID{API: "a"}
	for _, c := range []struct {
		what     string
		owner    string
		revision uint64
		clean    bool
	}{{"released", "", 180, true}, {"never claimed", "", 0, false}, {"of a session that has ended", "dead", 180, false}} {
		o := newState("me", "weir-0", now)
		o.dispatches(map[string]int{"a": 1})
		if c.revision > 0 {
			o.see(lease.Sighting{Partition: &p, Owner: c.owner, Revision: c.revision}, now)
		}
		o.see(lease.Sighting{}, now)
		if c.owner != "" {
			wants(t, o.plan(now), actionExpel)
			o.expelled(c.owner, true, 0, now)
		}
		wants(t, o.plan(now), actionClaim)
		o.claimed(p, 220, nil, now)
		actions := o.plan(now)
		wants(t, actions, actionOpen)
		if actions[0].clean != c.clean {
			t.Errorf("%s: clean %v", c.what, actions[0].clean)
		}
	}
	o, p := owning(t, now)
	if !o.held[p].clean {
		t.Fatal("what was released is not clean")
	}
	o.dropped(p, now) // with calls that run
	now = now.Add(2 * actionRetry)
	wants(t, o.plan(now), actionClaim)
	o.claimed(p, 230, nil, now)
	if actions := o.plan(now); actions[0].clean {
		t.Error("a partition is clean whose calls were let go of")
	}
}

// TestOpenedTooLate checks that the end of an earlier opening says nothing about the one under way.
func TestOpenedTooLate(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	o, p := owning(t, now)
	open := func() action {
		t.Helper()
		o.dropped(p, now)
		now = now.Add(2 * actionRetry)
		wants(t, o.plan(now), actionClaim)
		o.claimed(p, o.held[p].revision+10, nil, now)
		actions := o.plan(now)
		wants(t, actions, actionOpen)
		return actions[0]
	}
	first := open()
	second := open()
	o.opened(first, nil, now)
	if o.held[p].phase != holdOpening {
		t.Error("open, before the opening has ended")
	}
	o.opened(second, nil, now)
	if o.held[p].phase != holdOpen {
		t.Error("not open at the end of its opening")
	}
}

// TestSilentRegistry checks that while this replica's own lease cannot be renewed, and for a term after, no
// replica is taken for dead.
func TestSilentRegistry(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	o, _ := owning(t, began)
	other := lease.Member{Instance: "weir-1", Partitions: map[string]int{"b": 1}}
	o.see(lease.Sighting{Session: "other", Member: &other, Revision: 300}, began)
	term := lease.Term
	now := began.Add(2 * term)
	wants(t, o.plan(now)) // it has not renewed for as long
	back := now
	for ; now.Sub(back) < term-lease.MemberRenew; now = now.Add(lease.MemberRenew) {
		o.renew(now)
		wants(t, o.plan(now))
	}
	for ; now.Sub(back) <= term; now = now.Add(lease.MemberRenew) {
		o.renew(now)
	}
	wants(t, o.plan(now), actionExpel)
}

// TestSuccessionTakesATerm checks how long a partition has no owner after its owner's death: until one term after the
// owner's last renewal that this replica saw, or no time at all if the process is known to have ended. Nothing else is
// waited for.
func TestSuccessionTakesATerm(t *testing.T) {
	for _, known := range []bool{false, true} {
		now := time.Unix(1_700_000_000, 0)
		o, p := newState("me", "weir-0", now), lease.PartitionID{API: "a"}
		o.dispatches(map[string]int{"a": 1})
		o.watchBegins()
		for session, revision := range map[string]uint64{"me": 170, "dead": 171} {
			m := lease.Member{Instance: session, Partitions: map[string]int{"a": 1}}
			o.see(lease.Sighting{Session: session, Member: &m, Revision: revision}, now)
		}
		o.see(lease.Sighting{Partition: &p, Owner: "dead", Revision: 180}, now)
		o.see(lease.Sighting{}, now)
		died, until := now, now.Add(lease.Term)
		if known {
			until = now
		}
		o.lookFor(func(string) bool { return known })
		for ; now.Before(until); now = now.Add(planEvery) {
			if now.Sub(died)%lease.MemberRenew == 0 {
				o.renew(now)
			}
			wants(t, o.plan(now))
		}
		wants(t, o.plan(now), actionExpel)
		o.expelled("dead", true, 0, now)
		wants(t, o.plan(now), actionClaim)
		o.claimed(p, 220, nil, now)
		wants(t, o.plan(now), actionOpen)
	}
}

// TestTheEndedAreNotWaitedFor checks that a member whose process is known to have ended is expelled at once, and
// again if its last renewal came late. Any other member is expelled when it has not renewed for long enough.
func TestTheEndedAreNotWaitedFor(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	o := newState("self", "a", now)
	o.see(lease.Sighting{Session: "dead", Revision: 4, Member: &lease.Member{Instance: "b"}}, now)
	o.see(lease.Sighting{Session: "silent", Revision: 5, Member: &lease.Member{Instance: "c"}}, now)
	o.see(lease.Sighting{Session: "self", Revision: 6, Member: &lease.Member{Instance: "a"}}, now)
	o.see(lease.Sighting{}, now)
	if actions := o.expelDead(now); len(actions) > 0 {
		t.Fatalf("%+v, and nobody is known to have ended", actions)
	}
	o.lookFor(func(session string) bool { return session != "silent" })
	actions := o.expelDead(now)
	if len(actions) != 1 || actions[0].do != actionExpel || actions[0].session != "dead" || actions[0].revision != 4 {
		t.Fatalf("%+v", actions)
	}
	if len(o.expelDead(now)) > 0 {
		t.Error("it is expelled twice at once")
	}
	o.expelled("dead", false, 7, now)
	if actions = o.expelDead(now); len(actions) != 1 || actions[0].revision != 7 {
		t.Errorf("its last renewal came late: %+v", actions)
	}
}

// TestLeftToOthers checks that a replica that has left an api to others gets none of its partitions, unless all
// have.
func TestLeftToOthers(t *testing.T) {
	const n = 6
	now := time.Unix(1_700_000_000, 0)
	share := func(cutOff ...string) (mine int) {
		o := newState("s0", "weir-0", now)
		o.dispatches(map[string]int{"a": n})
		for i, session := range []string{"s0", "s1", "s2"} {
			m := lease.Member{Instance: "weir-" + session[1:], Partitions: map[string]int{"a": n}}
			if slices.Contains(cutOff, session) {
				m.CutOff = []string{"a"}
			}
			o.see(lease.Sighting{Session: session, Member: &m, Revision: uint64(10 + i)}, now)
		}
		o.see(lease.Sighting{}, now)
		for _, session := range o.aim() {
			if session == o.self {
				mine++
			}
		}
		return mine
	}
	for _, c := range []struct {
		what   string
		cutOff []string
		want   int
	}{
		{"nobody has left it", nil, n / 3},
		{"this one has", []string{"s0"}, 0},
		{"another one has", []string{"s1"}, n / 2},
		{"both others have", []string{"s1", "s2"}, n},
		{"all have", []string{"s0", "s1", "s2"}, n / 3},
	} {
		if got := share(c.cutOff...); got != c.want {
			t.Errorf("%s: it is to own %d of %d, not %d", c.what, got, n, c.want)
		}
	}
}

// TestAllPlanAlike checks that replicas that know the same members give each partition to the same session, and that
// each replica takes exactly the partitions that the others leave to it. Two replicas may have the same name, by
// mistake or because a process has just followed another.
func TestAllPlanAlike(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	rapid.Check(t, func(t *rapid.T) {
		apis := map[string]int{}
		for i := range rapid.IntRange(1, 3).Draw(t, "apis") {
			apis["api-"+strconv.Itoa(i)] = rapid.IntRange(1, 32).Draw(t, "partitions")
		}
		members := map[string]*lease.Member{}
		sessions := rapid.SliceOfNDistinct(rapid.StringMatching("[a-z]{3}"), 1, 8, rapid.ID).Draw(t, "sessions")
		for _, session := range sessions {
			m := &lease.Member{
				Instance:   rapid.StringMatching("weir-[0-5]").Draw(t, "name"),
				Partitions: apis, Leaving: rapid.IntRange(0, 5).Draw(t, "leaves") == 0,
			}
			if rapid.IntRange(0, 3).Draw(t, "cut off") == 0 {
				m.CutOff = []string{"api-0"}
			}
			members[session] = m
		}
		var aims map[lease.PartitionID]string
		owners := map[lease.PartitionID]string{}
		for _, self := range sessions {
			o := newState(self, members[self].Instance, now)
			o.dispatches(apis)
			for i, session := range rapid.Permutation(sessions).Draw(t, "seen") {
				o.see(lease.Sighting{Session: session, Member: members[session], Revision: uint64(10 + i)}, now)
			}
			if members[self].Leaving {
				o.leave()
			}
			o.see(lease.Sighting{}, now)
			got := o.aim()
			if aims == nil {
				aims = got
			}
			if !maps.Equal(got, aims) {
				t.Fatalf("%s and %s divide differently:\n%v\n%v", self, sessions[0], got, aims)
			}
			for _, p := range o.own {
				if by, twice := owners[p]; twice {
					t.Fatalf("%s and %s take %s", by, self, p)
				}
				owners[p] = self
			}
		}
		if !maps.Equal(owners, aims) {
			t.Fatalf("taken: %v, divided: %v", owners, aims)
		}
	})
}

// TestOwnClaimIsReleased checks that a replica releases a partition that another replica should own, if the registry
// shows a claim under its own session.
func TestOwnClaimIsReleased(t *testing.T) {
	const n = 2
	now, apis := time.Unix(1_700_000_000, 0), map[string]int{"a": n}
	for mine := range n {
		p := lease.PartitionID{API: "a", Number: mine}
		o := newState("s0", "weir-0", now)
		o.dispatches(apis)
		for i, session := range []string{"s0", "s1"} {
			m := lease.Member{Instance: "weir-" + session[1:], Partitions: apis}
			o.see(lease.Sighting{Session: session, Member: &m, Revision: uint64(10 + i)}, now)
		}
		o.see(lease.Sighting{Partition: &p, Owner: "s0", Revision: 20}, now)
		o.see(lease.Sighting{}, now)
		want := actionRelease
		if o.aim()[p] == "s0" {
			want = actionClaim // again, with a revision that this replica knows
		}
		got := actionExpel
		for _, d := range o.plan(now) {
			if d.part == p {
				got = d.do
			}
		}
		if got != want {
			t.Errorf("for %s it does %d, want %d", p, got, want)
		}
	}
}

// TestOthers checks what others makes of one other member's report. A member that leaves, or does not dispatch the api,
// does not count. A member that is cut off from the api counts only if it seeks a replica that reaches the api.
func TestOthers(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	tell := func(m lease.Member) Others {
		o := newState("s0", "weir-0", now)
		o.dispatches(map[string]int{"a": 2})
		if m.Partitions == nil {
			m.Partitions = map[string]int{"a": 2}
		}
		own := lease.Member{Partitions: m.Partitions, Reaches: []string{"a"}, Seeks: []string{"a"}}
		o.see(lease.Sighting{Session: "s0", Member: &own, Revision: 1}, now)
		o.see(lease.Sighting{Session: "s1", Member: &m, Revision: 2}, now)
		return o.others("a")
	}
	a := []string{"a"}
	for want, m := range map[Others]lease.Member{
		{Stay: true}:              {Reaches: []string{"b"}},
		{Stay: true, Reach: true}: {Reaches: a},
		{Stay: true, Seek: true}:  {Seeks: a},
		{Seek: true}:              {CutOff: a, Seeks: a, Reaches: a},
		{}:                        {Leaving: true, Reaches: a, Seeks: a},
	} {
		if got := tell(m); got != want {
			t.Errorf("%+v: %+v, want %+v", m, got, want)
		}
	}
	if got := tell(lease.Member{Partitions: map[string]int{"a": 3}, Reaches: a}); got != (Others{}) {
		t.Errorf("of one that does not dispatch it: %+v", got)
	}
}
