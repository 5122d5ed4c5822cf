package limits

import (
	"testing"
	"time"

	"weir/bucket"
)

// TestSharedLimitsOfFormerRules checks that costs of a job made ready under rules with more limits, or fewer, are
// taken in for the limits that both have, and that nothing is known of a limit that a new policy brings.
func TestSharedLimitsOfFormerRules(t *testing.T) {
	rate, now := bucket.Rate{Count: 10, Per: time.Second, Burst: 1}, bucket.Micros(1_000_000_000)
	rules := &bucket.Rules{Shared: []bucket.Limit{{Name: "account", Rate: &rate}, {Name: "concurrent", InFlight: 3}}}
	limits := NewShared(rules, 0, false, &Grants{})
	for _, costs := range [][]int64{nil, {2}, {2, 1, 7}} {
		limits.Granted(&Call{Costs: costs}, now)
		limits.Begin(&Call{Costs: costs}, now)
	}
	if account := limits.Named("account"); account.usual() != 2 || account.tat <= now || account.started.units[account.started.at(&rate, now)] != 4 {
		t.Errorf("of two calls of 2 units is known: %+v", account)
	}
	if limits.Named("tokens") != nil || limits.Named("") != nil {
		t.Error("a limit that the rules do not have was found")
	}
	if l := NewShared(rules, 0, false, &Grants{}).Named("account"); l.seen || l.tat != 0 || l.usual() != 1 {
		t.Errorf("of a new policy's limit is known: %+v", l)
	}
}

// TestSharedLimitLevels checks that the store's levels say how much of a quota is left, and that grants take from it.
func TestSharedLimitLevels(t *testing.T) {
	quota := bucket.Quota{Count: 100, Per: time.Hour, Window: bucket.Fixed}
	limits := NewShared(&bucket.Rules{Shared: []bucket.Limit{{Name: "hourly", Quota: &quota}}}, 0, false, &Grants{})
	near := func() (n float64, known bool) {
		n, known, _ = limits.Near(bucket.Micros(1_000_000_000), 0, 0, time.Second)
		return n, known
	}
	if n, known := near(); known || n != Plenty {
		t.Errorf("a quota whose level is not known lets %v calls start, known %t", n, known)
	}
	limits.Learn([]bucket.Level{{Limit: *limits[0].Limit, Used: 90, Count: 100, End: bucket.Micros(1_000_000_000).Add(time.Minute)}, {Limit: bucket.Limit{Name: "other"}}})
	if n, known := near(); !known || n != 9 {
		t.Errorf("10 units are left: %v calls beside one, known %t", n, known)
	}
	limits.Granted(&Call{Costs: []int64{4}}, bucket.Micros(1_000_000_000))
	if n, _ := near(); n != 6.0/4-1 {
		t.Errorf("6 units are left for calls of 4: %v calls beside one", n)
	}
	limits[0].refused(&Call{}, bucket.Micros(1_000_000_000).Add(time.Minute))
	if n, _, by := limits.Near(bucket.Micros(1_000_000_000), 0, 0, time.Second); n != 0 || by != "hourly" {
		t.Errorf("after a refusal %q lets %v calls start beside one", by, n)
	}
}

// TestForecastOfWhatIsLeft checks that units that only the vendor counts are taken as used until the vendor's count
// begins anew, and in the best case as free, since the next answer may say that enough is left.
func TestForecastOfWhatIsLeft(t *testing.T) {
	quota := bucket.Quota{Count: 100, Per: time.Hour, Window: bucket.Fixed}
	limit := bucket.Limit{Name: "hourly", Quota: &quota}
	limit.Left.Header = "X-Left"
	limits := NewShared(&bucket.Rules{Shared: []bucket.Limit{limit}}, 0, false, &Grants{})
	soon, end := bucket.Micros(1_000_000_000).Add(time.Minute), bucket.Micros(1_000_000_000).Add(30*time.Minute)
	limits.Learn([]bucket.Level{{Limit: limit, Used: 100, Count: 100, End: end, Excess: 40, ExcessUntil: soon}})
	l := &limits[0]
	for _, c := range []struct {
		ahead        float64
		shut         bucket.Micros
		likely, best bucket.Micros
	}{
		{0, 0, soon, 0}, {39, 0, soon, 0}, {40, 0, end, end}, {0, soon, soon, bucket.Micros(1_000_000_000)}, {40, soon, end, end},
	} {
		if at := l.After(c.ahead, bucket.Micros(1_000_000_000), c.shut, 0, time.Second, Likely); at != c.likely {
			t.Errorf("behind %v: in %s, want %s", c.ahead, bucket.Micros(1_000_000_000).Until(at), bucket.Micros(1_000_000_000).Until(c.likely))
		}
		if at := l.After(c.ahead, bucket.Micros(1_000_000_000), c.shut, 0, time.Second, BestCase); at != c.best {
			t.Errorf("behind %v at best: in %s, want %s", c.ahead, bucket.Micros(1_000_000_000).Until(at), bucket.Micros(1_000_000_000).Until(c.best))
		}
	}
}
