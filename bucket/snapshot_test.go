package bucket

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// crashLimits are one limit of each kind.
var crashLimits = []Limit{
	{Name: "account", Rate: &Rate{Count: 100, Per: time.Second, Burst: 10}},
	{Name: "sliding", Quota: &Quota{Count: 300, Window: Sliding, Per: 20 * time.Second}},
	{Name: "large", Quota: &Quota{Count: 1500, Window: Sliding, Per: 90 * time.Second}},
	{Name: "fixed", Quota: &Quota{Count: 200, Window: Fixed, Per: 10 * time.Second}},
	{Name: "spend", Budget: &Budget{Quota: Quota{Count: 700, Window: Calendar, Unit: Hour, Zone: time.UTC}, OnExhausted: Hold}},
	{Name: "calls", InFlight: 8},
}

// TestCrashesNeverUndercount kills a process at any time between making, storing and reporting a snapshot, again and
// again. All its lives together must keep every limit, and make progress.
func TestCrashesNeverUndercount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := Rules{Key: fast, Lease: 300 * time.Millisecond}
		for _, l := range crashLimits {
			if rapid.Bool().Draw(t, l.Name) {
				rules.Shared = append(rules.Shared, l)
			}
		}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2))
		crash := rapid.SampledFrom([]int{0, 3, 15}).Draw(t, "crashes in a thousand steps")
		ahead := time.Duration(rapid.SampledFrom([]int{40, 300, 1000}).Draw(t, "ahead ms")) * time.Millisecond
		now := t0
		life := func(from Snapshot) *Memory {
			m, err := NewMemory(rules, func() Micros { return now })
			if err != nil {
				t.Fatal(err)
			}
			m.Restore(thereAndBack(t, from))
			return m
		}
		m := life(Snapshot{})
		var stored, written Snapshot
		var all []Arrival
		for range 8000 { // about a minute
			now += Micros(rng.Int64N(16_000))
			switch p := rng.IntN(1000); {
			case p < crash:
				m = life(stored)
				written = Snapshot{}
			case p < 20:
				written = m.Checkpoint(ahead)
			case p < 60 && written.Until > 0:
				stored = written // durable, but the process may die before it knows
				if rng.IntN(10) > 0 {
					m.Saved(stored)
				}
				written = Snapshot{}
			}
			got, err := m.Reserve(context.Background(), []Ask{{Key: "k", Limits: fast, Want: 1, Horizon: 10 * time.Millisecond}})
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range got[0].Grants {
				all = append(all, Arrival{At: int64(g.At) * 1000, End: int64(g.At+200_000) * 1000})
				if rng.IntN(3) == 0 {
					all[len(all)-1].End = int64(now) * 1000
					_ = m.Settle(context.Background(), []Use{{Key: "k", Grant: g, Returned: g.At > now}})
					if g.At > now {
						all = all[:len(all)-1]
					}
				}
			}
		}
		for _, l := range rules.Shared {
			if v := Check(all, Expectation{Limit: l}); v.Outcome != Pass {
				t.Fatalf("%s: %v", l.Name, v)
			}
		}
		if crash == 0 && ahead == time.Second && len(all) < 300 {
			t.Fatalf("only %d calls in a minute", len(all))
		}
	})
}

// thereAndBack returns a snapshot as it is after it was stored and read.
func thereAndBack(t fataler, s Snapshot) (back Snapshot) {
	t.Helper()
	b, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(b, &back)
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
	return back
}

func TestLastCheckpointIsExact(t *testing.T) {
	rules := Rules{Key: fast, Shared: []Limit{
		{Name: "daily", Quota: &Quota{Count: 10, Window: Calendar, Unit: Day, Zone: time.UTC}},
		{Name: "hourly", Quota: &Quota{Count: 8, Window: Sliding, Per: time.Hour}},
		{Name: "calls", InFlight: 7},
		{Name: "account", Rate: &Rate{Count: 1000, Per: time.Hour, Burst: 500}},
	}}
	b := newTable(t, rules)
	b.Restore(Snapshot{})
	if got := b.ask(Ask{}); len(got.Grants) != 0 || got.Wait.Limit != OwnCheckpoint {
		t.Fatalf("granted before anything was stored: %+v", got)
	}
	for range 6 { // these quotas are so small that a snapshot claims one call
		b.Saved(b.Checkpoint(time.Second))
		if n := len(b.ask(Ask{Want: 2}).Grants); n != 1 {
			t.Fatalf("%d granted under a claim of one", n)
		}
	}
	last := thereAndBack(t, b.Checkpoint(0))
	if got := b.ask(Ask{}); len(got.Grants) != 0 {
		t.Error("granted after the last checkpoint")
	}
	next := newTable(t, rules)
	next.Restore(last)
	if s := next.Checkpoint(0); s.Limit[0].Used != 6 || s.Open != 6 || s.Limit[3].TAT != last.Limit[3].TAT {
		t.Errorf("restored %+v\nfrom %+v", s, last)
	}
	next = newTable(t, rules)
	next.Restore(last)
	next.Saved(next.Checkpoint(time.Second))
	if got := next.ask(Ask{Want: 9}); len(got.Grants) != 1 || got.Wait.Limit != "calls" {
		t.Errorf("6 of 7 calls were under way: %+v", got)
	}
}

// TestCrashCostsARateItsBurst checks that after a crash a rate, however slow, has none of its burst at the end of the
// snapshot's claim, and gets it back from then on.
func TestCrashCostsARateItsBurst(t *testing.T) {
	rules := Rules{Key: fast, Shared: []Limit{{Name: "slow", Rate: &Rate{Count: 1, Per: 6 * time.Hour, Burst: 3}}}}
	b := newTable(t, rules)
	b.Restore(Snapshot{})
	s := b.Checkpoint(2 * time.Second) // nothing was called
	next := newTable(t, rules)
	next.clock = t0 + 1_000_000
	next.Restore(thereAndBack(t, s))
	next.Saved(next.Checkpoint(2 * time.Second))
	interval := Micros(rules.Interval(*rules.Shared[0].Rate).Duration() / time.Microsecond)
	for cost := int64(1); cost <= 3; cost++ {
		want := t0 + 2_000_000 + Micros(cost)*interval
		got := next.ask(Ask{Costs: []int64{cost}}).Wait.Until
		if got < want || got > want+2 {
			t.Errorf("a call of cost %d waits until %d µs after the claim, not %d intervals", cost, got-s.Until, cost)
		}
	}
}

// TestClaimsCoverWhatCameAfter checks a crash right after a snapshot was stored, and a crash just after the end of a
// limit's period.
func TestClaimsCoverWhatCameAfter(t *testing.T) {
	rules := Rules{Key: fast, Shared: []Limit{{Name: "account", Rate: &Rate{Count: 100, Per: time.Minute, Burst: 10}}}}
	b := newTable(t, rules)
	b.Restore(Snapshot{})
	s := b.Checkpoint(time.Second)
	b.Saved(s)
	b.ask(Ask{Want: 10})
	next := newTable(t, rules)
	next.Restore(thereAndBack(t, s))
	next.Saved(next.Checkpoint(time.Second))
	if got := next.ask(Ask{}); len(got.Grants) != 0 {
		t.Error("the burst was there a second time")
	}

	rules = Rules{Key: fast, Shared: []Limit{{Name: "minute", Quota: &Quota{Count: 8, Window: Fixed, Per: time.Minute}}}}
	b = newTable(t, rules)
	b.Restore(Snapshot{})
	b.clock = t0 + 59_500_000
	s = b.Checkpoint(time.Second)
	b.Saved(s)
	b.clock = t0 + 60_100_000
	n := len(b.ask(Ask{Want: 9}).Grants)
	next = newTable(t, rules)
	next.clock = b.clock
	next.Restore(thereAndBack(t, s))
	for range 20 {
		next.Saved(next.Checkpoint(time.Second))
		n += len(next.ask(Ask{Want: 9}).Grants)
	}
	if n > 8 || n < 7 {
		t.Errorf("%d in the minute over both lives, want 8 or one less", n)
	}
}
