// Package storetest is the suite that every bucket.Store must pass: the worked examples of the limits as vectors, the
// mistakes of other limiters as regression tests, and random schedules whose arrivals the exact checker examines.
//
// All of it runs in virtual time: the store under test reads a Clock that only the suite moves. Nothing sleeps.
package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"weir/bucket"
)

// Clock is the time of a store under test.
type Clock struct {
	now bucket.Micros
}

// Now returns the present time.
func (c *Clock) Now() bucket.Micros { return c.now }

// Store is a bucket.Store whose rules can be changed while it runs. The suite tests such stores.
type Store interface {
	bucket.Store
	Apply(bucket.Rules) error
	// ShadowHolds returns for every shadow limit how many calls it would have held.
	ShadowHolds() map[string]int64
}

// Open returns an empty store for one api, in which every key is idle. The store reads clock.
type Open func(t testing.TB, rules bucket.Rules, clock *Clock) Store

// Start is when the suite's clocks begin: 2027-01-15 08:00 UTC, midnight in Los Angeles.
const Start = bucket.Micros(1_800_000_000_000_000)

// Run runs the whole suite against a store. scenes is the number of random schedules of each kind.
func Run(t *testing.T, open Open, scenes int) {
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"rate", rateTests},
		{"quota", quotaTests},
		{"settle", settleTests},
		{"rules", rulesTests},
		{"mistakes of others", mistakeTests},
		{"what the vendor says is left", leftTests},
		{"turns", lineTests},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, c := range group.tests {
				t.Run(c.name, func(t *testing.T) { c.run(&table{T: t, open: open}) })
			}
		})
	}
	t.Run("vendors", func(t *testing.T) { vendors(t, open, scenes) })
	t.Run("changes", func(t *testing.T) { Changes(t, open, scenes) })
	t.Run("returns", func(t *testing.T) { returns(t, open, scenes) })
	t.Run("schedules", func(t *testing.T) { schedules(t, open, scenes) })
}

type test struct {
	name string
	run  func(*table)
}

// table is a store under test with its clock and rules.
type table struct {
	*testing.T
	open  Open
	clock Clock
	rules bucket.Rules
	store Store
	last  int64 // the serial of the grant that a replica had last
}

// lay opens an empty store at Start.
func (b *table) lay(rules bucket.Rules) {
	b.Helper()
	b.clock.now, b.rules = Start, rules
	b.store = b.open(b, rules, &b.clock)
}

// apply puts new rules in force.
func (b *table) apply(rules bucket.Rules) {
	b.Helper()
	if err := b.store.Apply(rules); err != nil {
		b.Fatal(err)
	}
	b.rules = rules
}

// ask asks for key k and one slot under the rules' own limits, unless a sets something else.
func (b *table) ask(a bucket.Ask) bucket.Answer {
	b.Helper()
	got, err := b.store.Reserve(context.Background(), []bucket.Ask{b.whole(a)})
	if err != nil {
		b.Fatal(err)
	}
	return got[0]
}

func (b *table) whole(a bucket.Ask) bucket.Ask {
	if a.Key == "" {
		a.Key = "k"
	}
	if a.Limits == (bucket.KeyLimits{}) {
		a.Limits = b.rules.Key
	}
	if a.Want == 0 {
		a.Want = 1
	}
	return a
}

func (b *table) settle(uses ...bucket.Use) {
	b.Helper()
	if err := b.store.Settle(context.Background(), uses); err != nil {
		b.Fatal(err)
	}
}

// expectSlots compares the slots granted, in microseconds after Start.
func (b *table) expectSlots(got bucket.Answer, want ...int64) {
	b.Helper()
	var at []int64
	for _, g := range got.Grants {
		at = append(at, int64(g.At-Start))
	}
	if !slices.Equal(at, want) {
		b.Errorf("slots %v, want %v; %+v", at, want, got.Wait)
	}
}

// expectWait compares the Wait of an answer.
func (b *table) expectWait(got bucket.Answer, want bucket.Wait) {
	b.Helper()
	if got.Wait != want {
		b.Errorf("wait %+v, want %+v", got.Wait, want)
	}
}

func keyRate(count int64, per time.Duration, burst int64) bucket.KeyLimits {
	return bucket.KeyLimits{Rate: bucket.Rate{Count: count, Per: per, Burst: burst}}
}

func sharedRate(name string, count int64, per time.Duration, burst int64) bucket.Limit {
	return bucket.Limit{Name: name, Rate: &bucket.Rate{Count: count, Per: per, Burst: burst}}
}

func quota(name string, q bucket.Quota) bucket.Limit { return bucket.Limit{Name: name, Quota: &q} }

// fast is a key rate that does not bind.
var fast = keyRate(1_000_000, time.Second, 2_000_000)

func only(l ...bucket.Limit) bucket.Rules { return bucket.Rules{Key: fast, Shared: l} }
