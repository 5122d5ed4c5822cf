package bucket

import (
	"context"
	"testing"
	"time"

	"weir/ingest"

	"pgregory.net/rapid"
)

// heeding returns the limit with a header in which answers say what is left of it.
func heeding(l Limit) Limit {
	l.Left, l.LeftUntil = ingest.Source{Header: "X-Left"}, ingest.Source{Header: "X-Left-Until"}
	return l
}

// heedingLimits are one limit of each kind for which answers can say what is left.
var heedingLimits = []Limit{
	{Name: "window", Rate: &Rate{Count: 60, Per: time.Minute, Burst: 7}},
	{Name: "tokens", Rate: &Rate{Count: 60, Per: time.Minute, Burst: 20, Counts: ByTokens}},
	{Name: "sliding", Quota: &Quota{Count: 50, Window: Sliding, Per: time.Minute}},
	{Name: "fixed", Quota: &Quota{Count: 50, Window: Fixed, Per: time.Minute}},
	{Name: "calendar", Quota: &Quota{Count: 50, Window: Calendar, Unit: Hour, Zone: time.UTC}},
}

// TestExcessOfAnyAnswer checks answers with any numbers, in any order and more than once. An excess is never negative
// and never lasts longer than a period. What it leaves until then is never more than what the answer in force said.
func TestExcessOfAnyAnswer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := heeding(rapid.SampledFrom(heedingLimits).Draw(t, "limit"))
		rules := Rules{Key: fast, Shared: []Limit{limit}}
		rules.Headroom = rapid.SampledFrom([]int64{0, 20}).Draw(t, "headroom")
		now := t0
		m, err := NewMemory(rules, func() Micros { return now })
		if err != nil {
			t.Fatal(err)
		}
		var open []Use
		l, said := &m.engine.shared[0], int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += Micros(rapid.Int64Range(0, 5_000_000).Draw(t, "step"))
			if rapid.Bool().Draw(t, "ask") {
				before := l.excess
				got, err := m.Reserve(t.Context(), []Ask{{Key: "k", Limits: fast, Want: 3, Horizon: time.Second}})
				if err != nil {
					t.Fatal(err)
				}
				for _, g := range got[0].Grants {
					open = append(open, Use{Key: "k", Grant: g})
					if before.until > g.At && limit.Name != "sliding" {
						if said--; said < 0 {
							t.Fatalf("granted at %d what the vendor has not left until %d", g.At-t0, before.until-t0)
						}
					}
				}
				continue
			}
			if len(open) == 0 {
				continue
			}
			u := rapid.SampledFrom(open).Draw(t, "answered")
			left := Left{Valid: rapid.IntRange(0, 5).Draw(t, "valid") > 0, Units: rapid.Int64Range(0, 70).Draw(t, "left")}
			if rapid.Bool().Draw(t, "timed") {
				left.Until = now + Micros(rapid.OneOf(rapid.Int64Range(-1e7, 1e8), rapid.Int64()).Draw(t, "until")>>1)
				left.Least = left.Until - Micros(rapid.Int64Range(0, 2_000_000).Draw(t, "early"))
			}
			u.Left = []Left{left}
			before := l.excess
			if err := m.Settle(t.Context(), []Use{u}); err != nil {
				t.Fatal(err)
			}
			x := l.excess
			longest := max(now, u.Grant.At) + Micros(limit.Period()/time.Microsecond)
			if now < x.until && (x.units <= 0 || x != before && x.until > longest) || x.units < 0 {
				t.Fatalf("%+v by %+v at %d", x, left, now-t0)
			}
			said = max(0, x.room)
		}
	})
}

// TestExcessOutlivesTheProcess checks that after a restart the vendor's figure still holds until its count begins anew,
// less what the former process may have granted since its last snapshot.
func TestExcessOutlivesTheProcess(t *testing.T) {
	for _, limit := range heedingLimits {
		b := newTable(t, Rules{Key: fast, Shared: []Limit{heeding(limit)}})
		b.Restore(Snapshot{})
		b.Saved(b.Checkpoint(time.Second))
		until := t0 + 40_000_000
		b.answer(b.ask(Ask{}).Grants[0], 0, until)
		for _, ahead := range []time.Duration{time.Second, 0} {
			next := newTable(t, b.rules)
			next.clock = t0 + 20_000_000
			next.Restore(thereAndBack(t, b.Checkpoint(ahead)))
			next.Saved(next.Checkpoint(time.Second))
			if got := next.ask(Ask{}); len(got.Grants) != 0 {
				t.Errorf("%s: %d granted although the vendor has nothing left", limit.Name, len(got.Grants))
			}
			l := next.Levels()
			if len(l) != 1 || l[0].Excess <= 0 || l[0].ExcessUntil != until || l[0].Used > l[0].Count {
				t.Errorf("%s: the level after a restart is %+v", limit.Name, l)
			}
			next.clock = until
			next.Saved(next.Checkpoint(time.Second))
			if got := next.ask(Ask{}); len(got.Grants) != 1 {
				t.Errorf("%s: nothing granted when the vendor's count has begun anew: %+v", limit.Name, got.Wait)
			}
		}
	}
}

// TestCrashGrantsNothingTwice checks that units that were granted after the last snapshot are not granted again from
// the vendor's figure.
func TestCrashGrantsNothingTwice(t *testing.T) {
	limit := heeding(Limit{Name: "account", Rate: &Rate{Count: 60, Per: time.Minute, Burst: 5}})
	b := newTable(t, Rules{Key: fast, Shared: []Limit{limit}})
	b.Restore(Snapshot{})
	b.Saved(b.Checkpoint(2 * time.Second))
	until := t0 + 30_000_000
	b.answer(b.ask(Ask{}).Grants[0], 7, until)
	s := b.Checkpoint(2 * time.Second)
	b.Saved(s)
	granted := len(b.ask(Ask{Want: 9, Horizon: 2 * time.Second}).Grants)
	next := newTable(t, b.rules)
	next.clock = t0 + 3_000_000
	next.Restore(thereAndBack(t, s))
	for next.clock < until {
		next.Saved(next.Checkpoint(2 * time.Second))
		granted += len(next.ask(Ask{Want: 9}).Grants)
		next.clock += 500_000
	}
	if granted == 0 || granted > 7 {
		t.Errorf("%d granted over a crash of the 7 that were left", granted)
	}
}

// TestExcessNeedsTheSameLimit checks that a limit with other settings does not take the excess over.
func TestExcessNeedsTheSameLimit(t *testing.T) {
	for i, limit := range heedingLimits {
		for j, other := range heedingLimits {
			limit.Name, other.Name = "account", "account"
			b := newTable(t, Rules{Key: fast, Shared: []Limit{heeding(limit)}})
			b.Restore(Snapshot{})
			b.Saved(b.Checkpoint(time.Second))
			until := t0 + 40_000_000
			b.answer(b.ask(Ask{}).Grants[0], 0, until)
			s := thereAndBack(t, b.Checkpoint(0))
			turned := newTable(t, Rules{Key: fast, Shared: []Limit{heeding(other)}})
			turned.Restore(s)
			if err := b.Apply(turned.rules); err != nil {
				t.Fatal(err)
			}
			live, stored := b.engine.shared[0].excess.until, turned.engine.shared[0].excess.until
			if (live == until) != (i == j) || (stored == until) != (i == j) {
				t.Errorf("%d turned to %d: the excess lasts until %d, and after a restart until %d", i, j, live, stored)
			}
		}
	}
}

// answer settles a call whose answer says what is left until a time.
func (b *table) answer(g Grant, units int64, until Micros) {
	b.t.Helper()
	left := []Left{{Valid: true, Units: units, Until: until, Least: until}}
	if err := b.Settle(context.Background(), []Use{{Key: "k", Grant: g, Left: left}}); err != nil {
		b.t.Fatal(err)
	}
}

func TestValidateLeft(t *testing.T) {
	for _, l := range []Limit{
		{Name: "calls", InFlight: 5},
		{Name: "spend", Budget: &Budget{Quota: *heedingLimits[4].Quota, OnExhausted: Hold}},
	} {
		if err := (Rules{Key: fast, Shared: []Limit{heeding(l)}}).Validate(); err == nil {
			t.Errorf("%s may say what is left", l.Name)
		}
	}
}
