package bucket

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestCheckingAgrees checks that Checking, which gets arrivals one by one, finds the same verdict as Check.
func TestCheckingAgrees(t *testing.T) {
	fails := 0
	for seed := range uint64(3000) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		per := time.Duration(1+rnd.Int64N(2000)) * time.Millisecond
		count := 1 + rnd.Int64N(8)
		quota := Quota{Count: count, Window: Sliding, Per: per}
		calendar := Quota{Count: 5 * count, Window: Calendar, Unit: Hour, Zone: time.UTC}
		fixed := Quota{Count: count, Window: Fixed, Per: per}
		limit := []Limit{
			{Rate: &Rate{Count: count, Per: per, Burst: 1 + rnd.Int64N(4)}},
			{Quota: &quota},
			{Quota: &calendar},
			{Quota: &fixed},
			{Budget: &Budget{Quota: quota}},
			{InFlight: count},
		}[rnd.IntN(6)]
		claim := Expectation{Limit: limit, Jitter: time.Duration(rnd.Int64N(int64(5 * time.Millisecond)))}
		var arrivals []Arrival
		for at := int64(1_700_000_000_000_000_000); len(arrivals) < 60; at += rnd.Int64N(int64(per)/count*5 + 1) {
			arrivals = append(arrivals, Arrival{At: at, End: at + rnd.Int64N(int64(time.Second)), Cost: rnd.Int64N(3), Beyond: max(0, rnd.Int64N(6)-3)})
		}
		want := Check(arrivals, claim)
		checking := NewChecking(claim)
		for _, a := range arrivals {
			checking.Add(a)
		}
		got := checking.Verdict()
		if got.Outcome != want.Outcome || got.Worst != want.Worst || got.Allowed != want.Allowed || got.Burst != want.Burst ||
			got.Calls != want.Calls || got.Beyond != want.Beyond || got.Units != want.Units || got.BurstFrom != want.BurstFrom || got.BurstTo != want.BurstTo {
			t.Fatalf("seed %d, %+v: one by one\n%s, all at once\n%s", seed, limit, got, want)
		}
		if got.Outcome == Fail {
			fails++
		}
		if len(checking.window) > len(arrivals) || !slices.IsSortedFunc(checking.underWay, func(a, b counted) int { return int(a.at - b.at) }) {
			t.Fatalf("seed %d: the window is not what it should be", seed)
		}
	}
	if fails < 300 || fails > 2700 {
		t.Errorf("%d of 3000 random schedules broke their limits: that says little", fails)
	}
}

// TestCheckingForgets checks that Checking drops arrivals that no later window can hold.
func TestCheckingForgets(t *testing.T) {
	c := NewChecking(Expectation{Limit: Limit{Rate: &Rate{Count: 10, Per: time.Second, Burst: 1}}})
	for i := range int64(100_000) {
		c.Add(Arrival{At: i * int64(100*time.Millisecond)})
	}
	if v := c.Verdict(); v.Outcome != Pass || v.Worst != 10 || v.Calls != 100_000 {
		t.Errorf("%s", v)
	}
	if n := cap(c.window); n > 64 {
		t.Errorf("room for %d arrivals is kept where a period has 10", n)
	}
}
