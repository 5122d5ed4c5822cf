package bucket

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
	"unsafe"
)

const t0 = Micros(1_800_000_000_000_000)

// table is a store with its own clock. Its methods fail the test on errors.
type table struct {
	*Memory
	t     testing.TB
	clock Micros
	rules Rules
}

func newTable(t testing.TB, rules Rules) *table {
	t.Helper()
	b := &table{t: t, clock: t0, rules: rules}
	m, err := NewMemory(rules, func() Micros { return b.clock })
	if err != nil {
		t.Fatal(err)
	}
	b.Memory = m
	return b
}

func (b *table) ask(a Ask) Answer {
	b.t.Helper()
	if a.Key == "" {
		a.Key = "k"
	}
	if a.Limits == (KeyLimits{}) {
		a.Limits = b.rules.Key
	}
	if a.Want == 0 {
		a.Want = 1
	}
	got, err := b.Reserve(context.Background(), []Ask{a})
	if err != nil {
		b.t.Fatal(err)
	}
	return got[0]
}

func key(count int64, per time.Duration, burst int64) KeyLimits {
	return KeyLimits{Rate: Rate{Count: count, Per: per, Burst: burst}}
}

// fast is a key rate that never binds in these tests.
var fast = key(1_000_000, time.Second, 2_000_000)

func TestGCRAVectors(t *testing.T) {
	tenth := Interval{100_000, 1}
	var g gcra
	run := func(now Micros, iv Interval, burst int64, costs ...int64) (at []int64) {
		for _, c := range costs {
			s := g.slot(now, iv, burst, c)
			g.take(s, iv, c)
			at = append(at, int64(s-t0))
		}
		return at
	}
	expect := func(name string, got []int64, want ...int64) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: slots %v, want %v", name, got, want)
		}
	}
	expect("burst 1", run(t0, tenth, 1, 1, 1, 1, 1, 1), 0, 100_000, 200_000, 300_000, 400_000)
	g = gcra{}
	expect("burst 3", run(t0, tenth, 3, 1, 1, 1, 1, 1), 0, 0, 0, 100_000, 200_000)
	expect("burst 3 after idling", run(t0+5_000_000, tenth, 3, 1, 1, 1, 1, 1), 5_000_000, 5_000_000, 5_000_000, 5_100_000, 5_200_000)
	g = gcra{}
	expect("costs", run(t0, Interval{10_000, 1}, 20, 5, 20, 1), 0, 50_000, 60_000)
	if g.tat != t0+260_000 {
		t.Errorf("costs: TAT %d, want 260000", g.tat-t0)
	}
	g = gcra{}
	expect("7/s keeps its fraction", run(t0, Interval{1_000_000, 7}, 1, 1, 1, 1, 1, 1, 1, 1, 1),
		0, 142858, 285715, 428572, 571429, 714286, 857143, 1000000)
}

func TestIdleKeysAreForgotten(t *testing.T) {
	b := newTable(t, Rules{Key: key(1, time.Second, 1)})
	for i := range 5000 {
		b.ask(Ask{Key: fmt.Sprint("once", i)})
	}
	debtor := b.ask(Ask{Key: "debtor", Want: 64, Horizon: time.Hour})
	b.clock += 2_000_000
	for i := range 3000 {
		b.ask(Ask{Key: fmt.Sprint("later", i%10)})
	}
	if n := b.Keys(); n > 20 {
		t.Errorf("%d keys held, want only the few in debt", n)
	}
	if tat, ok := b.TAT("debtor"); !ok || tat != debtor.Grants[63].TAT {
		t.Error("a key in debt was forgotten")
	}
	if n := unsafe.Sizeof(keptKey{}); n > 32 {
		t.Errorf("%d bytes of state a key, want at most 32", n)
	}
	if n := len(b.engine.keys.paces.numbers); n != 1 {
		t.Errorf("%d paces are kept of one rate", n)
	}
}

func TestOverrides(t *testing.T) {
	rate := func(n int64) *Rate { return &Rate{Count: n, Per: time.Second, Burst: 1} }
	r := Rules{Key: KeyLimits{Rate: *rate(1), Capacity: 7}, Overrides: []Override{
		{Pattern: "vip-*", Rate: rate(2)},
		{Pattern: "vip-1", Rate: rate(3)},
		{Pattern: "*", Rate: rate(4)},
		{Pattern: "vip-*-gold", Rate: rate(5)},
		{Pattern: "a*", Rate: rate(6)},
		{Pattern: "*z", Rate: rate(7)},
	}}
	for key, want := range map[string]int64{
		"vip-1": 3, "vip-2": 2, "VIP-2": 4, "x": 4, "vip--gold": 5, "vip-x-gold": 5, "az": 7, "ab": 6, "": 4,
	} {
		got := r.For(key)
		if got.Rate.Count != want || got.Capacity != 7 {
			t.Errorf("For(%q) = %d/s, want %d/s", key, got.Rate.Count, want)
		}
	}
}

// TestSerialsAreNotGivenAgain checks that a process that starts a second later uses no serial that the former process
// may have used.
func TestSerialsAreNotGivenAgain(t *testing.T) {
	rules := Rules{Key: fast}
	before := newTable(t, rules)
	last := int64(0)
	for range 100 {
		last = max(last, before.ask(Ask{}).Grants[0].Serial)
	}
	after, err := NewMemory(rules, func() Micros { return t0.Add(time.Second) })
	if err != nil {
		t.Fatal(err)
	}
	got, err := after.Reserve(t.Context(), []Ask{{Key: "k", Limits: rules.Key, Want: 1}})
	if err != nil || got[0].Grants[0].Serial <= last {
		t.Errorf("a serial of %d after %d, %v", got[0].Grants[0].Serial, last, err)
	}
}

// TestNothingComesBackAfterRestart checks that slots of a former process which are returned to the next process lower
// no debt of the key: the next process knows the key only from the ledger.
func TestNothingComesBackAfterRestart(t *testing.T) {
	rules := Rules{Key: key(3, time.Hour, 3)}
	former := newTable(t, rules)
	var uses []Use
	for range 3 {
		uses = append(uses, Use{Key: "k", Grant: former.ask(Ask{}).Grants[0], Returned: true})
	}
	slices.Reverse(uses)
	after, err := NewMemory(rules, func() Micros { return t0.Add(time.Second) })
	if err != nil {
		t.Fatal(err)
	}
	b := &table{Memory: after, t: t, rules: rules}
	floor := uses[1].Grant.TAT // of the second, which may have been called
	own := b.ask(Ask{Floor: floor}).Grants[0]
	for _, c := range []struct {
		use  Use
		owes Micros
	}{
		{uses[0], own.TAT},
		{uses[1], own.TAT},
		{uses[2], own.TAT},
		{Use{Key: "k", Grant: own, Returned: true}, floor},
		{uses[0], floor},
		{uses[1], floor},
		{uses[2], floor},
	} {
		if err := b.Settle(t.Context(), []Use{c.use}); err != nil {
			t.Fatal(err)
		}
		if tat, _ := b.TAT("k"); tat != c.owes || own.Before != 0 {
			t.Errorf("%+v is back: the key owes until %d, want %d", c.use.Grant, tat, c.owes)
		}
	}
}
