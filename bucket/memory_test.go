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

// table is a store on a table in front of us: with a clock of its own, and failing the test by itself.
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

// slots is the times of an answer's grants in milliseconds after the start.
func slots(a Answer) []float64 {
	var at []float64
	for _, g := range a.Grants {
		at = append(at, float64(g.At-t0)/1000)
	}
	return at
}

func (b *table) settle(u ...Use) {
	b.t.Helper()
	if err := b.Settle(context.Background(), u); err != nil {
		b.t.Fatal(err)
	}
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

// TestCommonSlot is the regression for the mistake of charging an idle limit from now instead of from the slot.
func TestCommonSlot(t *testing.T) {
	b := newTable(t, Rules{Key: key(1, time.Second, 1), Shared: []Limit{
		{Name: "account", Rate: &Rate{Count: 2, Per: time.Second, Burst: 2}},
	}})
	b.ask(Ask{Key: "a"})
	got := b.ask(Ask{Key: "a", Horizon: 10 * time.Second})
	if s := slots(got); !slices.Equal(s, []float64{1000}) {
		t.Fatalf("second slot of a: %v", s)
	}
	// The account's bucket now holds one call at 1 s, and so only one more fits there: charged from now, it would have
	// drained by then and let two more leave with it.
	b.clock = t0 + 1_000_000
	var together int
	for i := range 3 {
		together += len(b.ask(Ask{Key: fmt.Sprint("other", i)}).Grants)
	}
	if together != 1 {
		t.Errorf("%d more calls left together with the reserved one, want 1 (burst 2)", together)
	}
}

func TestHorizonNamesTheBindingLimit(t *testing.T) {
	b := newTable(t, Rules{Key: key(10, time.Second, 1), Shared: []Limit{
		{Name: "account", Rate: &Rate{Count: 1, Per: time.Second, Burst: 1}},
	}})
	got := b.ask(Ask{Want: 3, Horizon: 1500 * time.Millisecond})
	if s := slots(got); !slices.Equal(s, []float64{0, 1000}) {
		t.Errorf("slots %v", s)
	}
	if want := (Wait{Limit: "account", Until: t0 + 500_000}); got.Wait != want {
		t.Errorf("wait %+v, want %+v", got.Wait, want)
	}
	b = newTable(t, Rules{Key: key(1, time.Second, 1)})
	b.ask(Ask{})
	if got := b.ask(Ask{}); got.Wait != (Wait{Limit: "rate", Until: t0 + 1_000_000}) {
		t.Errorf("own rate: %+v", got)
	}
}

func TestCostAboveTheBurstNeverPasses(t *testing.T) {
	b := newTable(t, Rules{Key: fast, Shared: []Limit{
		{Name: "tokens", Rate: &Rate{Count: 100, Per: time.Second, Burst: 20}},
		{Name: "after", Rate: &Rate{Count: 1, Per: time.Second, Burst: 1}},
	}})
	got := b.ask(Ask{Costs: []int64{21, 1}})
	if len(got.Grants) != 0 || got.Wait != (Wait{Limit: "tokens", Never: true}) {
		t.Errorf("answer %+v", got)
	}
	// Refused by one, charged to none: over-limit descriptors elsewhere have been known to count in the others.
	if got := b.ask(Ask{Costs: []int64{20, 1}}); len(got.Grants) != 1 {
		t.Errorf("the refused call was charged: %+v", got)
	}
}

func TestClockStepBackMintsNothing(t *testing.T) {
	b := newTable(t, Rules{Key: key(10, time.Second, 1)})
	b.ask(Ask{})
	b.clock = t0 - 3_600_000_000
	for range 100 {
		if got := b.ask(Ask{}); len(got.Grants) != 0 {
			t.Fatal("a call left because the clock went back")
		}
	}
	b.clock = t0 + 100_000
	if got := b.ask(Ask{}); len(got.Grants) != 1 {
		t.Errorf("no slot once the clock had caught up: %+v", got)
	}
}

func TestIdlingEarnsOneBurstOnly(t *testing.T) {
	b := newTable(t, Rules{Key: key(10, time.Second, 3)})
	for _, pause := range []Micros{0, 1_000_000, 1e15} {
		b.clock += pause
		if n := len(b.ask(Ask{Want: 10}).Grants); n != 3 {
			t.Errorf("after %d µs of idling %d left together, want 3", pause, n)
		}
	}
}

func TestReturnedSlotIsGivenBackOnlyToItsLast(t *testing.T) {
	b := newTable(t, Rules{Key: key(1, 24*time.Hour, 1)})
	g := b.ask(Ask{}).Grants[0]
	b.settle(Use{Key: "k", Grant: g, Returned: true})
	again := b.ask(Ask{})
	if len(again.Grants) != 1 || again.Grants[0].At != t0 {
		t.Fatalf("a missed slot cost a day: %+v", again)
	}
	b.settle(Use{Key: "k", Grant: g, Returned: true}) // the same return once more, as a retried round trip sends it
	if got := b.ask(Ask{}); len(got.Grants) != 0 {
		t.Error("returning one grant twice gave another call's slot away")
	}

	b = newTable(t, Rules{Key: key(1, time.Second, 1)})
	all := b.ask(Ask{Want: 3, Horizon: time.Minute}).Grants
	b.settle(Use{Key: "k", Grant: all[0], Returned: true})
	if tat, _ := b.TAT("k"); tat != t0+3_000_000 {
		t.Errorf("a slot with later ones behind it was given back: TAT %d", tat-t0)
	}
	b.settle(Use{Key: "k", Grant: all[2], Returned: true}, Use{Key: "k", Grant: all[1], Returned: true})
	if tat, _ := b.TAT("k"); tat != t0+1_000_000 {
		t.Errorf("two slots in reverse order: TAT %d, want 1000000", tat-t0)
	}
}

func TestFloorRemindsTheStore(t *testing.T) {
	b := newTable(t, Rules{Key: key(1, time.Second, 1)})
	if got := b.ask(Ask{Floor: t0 + 700_000}); got.Wait.Until != t0+700_000 {
		t.Errorf("%+v", got)
	}
}

func TestInFlightPermits(t *testing.T) {
	b := newTable(t, Rules{Key: fast, Lease: time.Minute, Shared: []Limit{{Name: "concurrent", InFlight: 2}}})
	got := b.ask(Ask{Want: 3})
	if len(got.Grants) != 2 || got.Wait.Limit != "concurrent" || got.Wait.Until <= b.clock {
		t.Fatalf("%+v", got)
	}
	use := Use{Key: "k", Grant: got.Grants[0]}
	b.settle(use, use)
	if n := len(b.ask(Ask{Want: 3}).Grants); n != 1 {
		t.Errorf("%d permits after one call ended (settled twice), want 1", n)
	}
	b.clock += 60_000_000
	if n := len(b.ask(Ask{Want: 3}).Grants); n != 2 {
		t.Errorf("%d permits after all leases ran out, want 2", n)
	}
}

func TestShadowCountsAndHoldsNothing(t *testing.T) {
	b := newTable(t, Rules{Key: fast, Shared: []Limit{
		{Name: "maybe", Rate: &Rate{Count: 10, Per: time.Second, Burst: 3}, Shadow: true},
		{Name: "calls", InFlight: 4, Shadow: true},
	}})
	if n := len(b.ask(Ask{Want: 10}).Grants); n != 10 {
		t.Errorf("%d of 10 passed", n)
	}
	if h := b.ShadowHolds(); h["maybe"] != 7 || h["calls"] != 6 {
		t.Errorf("would have held %v, want maybe 7 and calls 6", h)
	}
}

func TestActualCostChargesAndRefunds(t *testing.T) {
	tokens := func() *table {
		return newTable(t, Rules{Key: fast, Shared: []Limit{{
			Name: "tokens", Rate: &Rate{Count: 1000, Per: time.Second, Burst: 100},
			Cost: CostSource{SettleHeader: "X-Tokens"},
		}}})
	}
	b := tokens() // T is 1 s / 901 rounded up: 1110 µs
	T := Micros(1110)
	g := b.ask(Ask{Costs: []int64{100}}).Grants[0]
	b.settle(Use{Key: "k", Grant: g, Costs: []int64{100}, Actual: []int64{300}})
	if got := b.ask(Ask{Costs: []int64{100}}); got.Wait.Until < t0+300*T {
		t.Errorf("an overage of 200 was not charged: %+v", got.Wait)
	}

	b = tokens()
	g = b.ask(Ask{Costs: []int64{100}}).Grants[0]
	b.settle(Use{Key: "k", Grant: g, Costs: []int64{100}, Actual: []int64{10}})
	if got := b.ask(Ask{Costs: []int64{90}}); len(got.Grants) != 1 {
		t.Errorf("90 of 100 were not given back: %+v", got.Wait)
	}

	// A bucket that drained meanwhile has forgotten the estimate: a late refund must not mint.
	b = tokens()
	g = b.ask(Ask{Costs: []int64{100}}).Grants[0]
	b.clock += 100 * T
	b.ask(Ask{Costs: []int64{100}})
	b.settle(Use{Key: "k", Grant: g, Costs: []int64{100}, Actual: []int64{0}})
	if got := b.ask(Ask{Costs: []int64{100}}); len(got.Grants) != 0 {
		t.Error("a refund after the bucket had drained let a second burst leave")
	}
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
	if n := unsafe.Sizeof(keyState{}); n > 64 {
		t.Errorf("%d bytes of state a key, want at most 64", n)
	}
}

func TestChangedRatesBindAtOnce(t *testing.T) {
	slow, quick := key(1, time.Hour, 1), key(3600, time.Hour, 1)
	b := newTable(t, Rules{Key: slow})
	b.ask(Ask{})
	if got := b.ask(Ask{Limits: quick}); got.Wait.Until > t0+1_000_010 {
		t.Errorf("raised, but waits until %d µs", got.Wait.Until-t0)
	}
	if got := b.ask(Ask{Limits: slow}); got.Wait.Until < t0+3_599_000_000 {
		t.Errorf("lowered, but waits only until %d µs", got.Wait.Until-t0)
	}

	shared := func(n int64) Rules {
		return Rules{Key: fast, Shared: []Limit{
			{Name: "other", InFlight: 1000},
			{Name: "account", Rate: &Rate{Count: n, Per: time.Hour, Burst: 1}},
		}}
	}
	b = newTable(t, Rules{Key: fast, Shared: shared(1).Shared[1:]})
	b.ask(Ask{})
	if err := b.Apply(shared(3600)); err != nil {
		t.Fatal(err)
	}
	if got := b.ask(Ask{}); len(got.Grants) != 0 || got.Wait.Until > t0+1_000_010 {
		t.Errorf("shared, raised: %+v", got)
	}
	if err := b.Apply(Rules{}); err == nil {
		t.Error("rules without a rate were accepted")
	}
	if got := b.ask(Ask{}); len(got.Grants) != 0 || got.Wait.Limit != "account" {
		t.Errorf("refused rules changed something: %+v", got)
	}
}

func TestAskMalformed(t *testing.T) {
	b := newTable(t, Rules{Key: fast, Shared: []Limit{{Name: "calls", InFlight: 1}}})
	for _, a := range []Ask{
		{Want: 0}, {Want: 65}, {Want: 1, Horizon: -1}, {Want: 1, Costs: []int64{1, 2}}, {Want: 1, Costs: []int64{-1}},
	} {
		a.Key = "k"
		if a.Limits = fast; a.Want == 1 && a.Costs == nil && a.Horizon == 0 {
			a.Limits = KeyLimits{}
		}
		if _, err := b.Reserve(context.Background(), []Ask{{Key: "good", Limits: fast, Want: 1}, a}); err == nil {
			t.Errorf("%+v was accepted", a)
		}
	}
	if got := b.ask(Ask{}); len(got.Grants) != 1 {
		t.Error("a failed Reserve granted something")
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
