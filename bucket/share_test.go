package bucket

import (
	"slices"
	"testing"
	"time"
)

// TestPartsAddUp checks that the parts of a limit never add up to more than the limit, whatever the shares, and that a
// part of which nothing is left is an error.
func TestPartsAddUp(t *testing.T) {
	t.Parallel()
	for count := int64(1); count < 40; count++ {
		limits := []Limit{
			{Name: "window", Rate: &Rate{Count: count, Per: time.Second, Burst: 1}},
			{Name: "tokens", Rate: &Rate{Count: count, Per: time.Minute, Burst: count, Counts: ByTokens}},
			{Name: "quota", Quota: &Quota{Count: count, Window: Sliding, Per: time.Hour}},
			{Name: "budget", Budget: &Budget{Quota: Quota{Count: count, Window: Fixed, Per: time.Hour}, OnExhausted: Hold}},
			{Name: "running", InFlight: count},
		}
		for percent := int64(1); percent < WholeShare; percent++ {
			for _, l := range limits {
				a, errA := l.Part(percent)
				b, errB := l.Part(WholeShare - percent)
				if errA == nil && (Rules{Key: KeyLimits{Rate: Rate{Count: 1, Per: time.Second, Burst: 1}}, Shared: []Limit{a}}).Validate() != nil {
					t.Fatalf("%d%% of %s %d is not valid", percent, l.Name, count)
				}
				if errA != nil || errB != nil {
					continue
				}
				if sum := units(a) + units(b); sum > units(l) || units(a) < 1 {
					t.Fatalf("%s: %d%% of %v and the rest are %v and %v", l.Name, percent, units(l), units(a), units(b))
				}
			}
		}
	}
}

// units returns what a limit lets pass: of tokens, those at once.
func units(l Limit) float64 {
	switch l.Kind() {
	case KindRate:
		if l.Rate.Counted() == ByTokens {
			return float64(l.Rate.Burst)
		}
		return float64(l.Rate.Count)
	case KindQuota:
		return float64(l.Quota.Count)
	case KindBudget:
		return float64(l.Budget.Count)
	case KindInFlight:
	}
	return float64(l.InFlight)
}

// TestPartOfNothing checks that a share that leaves nothing is an error.
func TestPartOfNothing(t *testing.T) {
	t.Parallel()
	for _, l := range []Limit{
		{Name: "window", Rate: &Rate{Count: 3, Per: time.Second, Burst: 1}},
		{Name: "tokens", Rate: &Rate{Count: 30, Per: time.Minute, Burst: 3, Counts: ByTokens}},
		{Name: "quota", Quota: &Quota{Count: 3, Window: Sliding, Per: time.Hour}},
		{Name: "budget", Budget: &Budget{Quota: Quota{Count: 3, Window: Fixed, Per: time.Hour}, OnExhausted: Hold}},
		{Name: "running", InFlight: 3},
	} {
		if _, err := l.Part(33); err == nil {
			t.Errorf("33%% of %s is no error", l.Name)
		}
		if _, err := l.Part(34); err != nil {
			t.Errorf("34%% of %s: %v", l.Name, err)
		}
		if _, err := l.Part(0); err == nil {
			t.Errorf("0%% of %s is no error", l.Name)
		}
	}
}

// TestPartOfTokensIsExact checks that a share of a rate in tokens is not rounded: 30 % of 5 per second is 3 in 2 s.
func TestPartOfTokensIsExact(t *testing.T) {
	t.Parallel()
	l, err := Limit{Name: "t", Rate: &Rate{Count: 5, Per: time.Second, Burst: 10, Counts: ByTokens}}.Part(30)
	if want := (Rate{Count: 3, Per: 2 * time.Second, Burst: 3, Counts: ByTokens}); err != nil || *l.Rate != want {
		t.Errorf("%+v, %v", *l.Rate, err)
	}
}

// TestOver checks which limits of an account count as not clear.
func TestOver(t *testing.T) {
	t.Parallel()
	now := Micros(1_800_000_000_000_000)
	r := Rules{In: &Membership{Account: "a", Jitter: 10 * time.Millisecond}, Shared: []Limit{
		{Name: "own", InFlight: 1},
		{Name: "a/q", Account: "a", Quota: &Quota{Count: 10, Window: Fixed, Per: time.Hour}},
		{Name: "a/n", Account: "a", InFlight: 5},
		{Name: "a/r", Account: "a", Rate: &Rate{Count: 1, Per: time.Second, Burst: 1}},
	}}
	level := Level{Limit: r.Shared[1], Used: 10, Count: 10, Start: now - 1e6, End: now + 1e6}
	for name, of := range map[string]struct {
		change  func(*Level)
		running int64
		want    []string
	}{
		"clear":          {func(*Level) {}, 5, nil},
		"used":           {func(l *Level) { l.Used++ }, 5, []string{"a/q"}},
		"unknown":        {func(l *Level) { l.Unknown = true }, 0, []string{"a/q"}},
		"just begun":     {func(l *Level) { l.Start = now - 1000 }, 0, []string{"a/q"}},
		"calls run":      {func(*Level) {}, 6, []string{"a/n"}},
		"no level":       {func(l *Level) { l.Limit.Name = "other" }, 0, []string{"a/q"}},
		"all of it over": {func(l *Level) { l.Used = 11 }, 9, []string{"a/q", "a/n"}},
	} {
		l := level
		of.change(&l)
		if got := r.Over([]Level{l}, of.running, now); !slices.Equal(got, of.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestGone checks when calls of a site that says nothing count no more.
func TestGone(t *testing.T) {
	t.Parallel()
	now := MicrosOf(time.Date(2026, 3, 4, 23, 0, 0, 0, time.UTC))
	limits := []Limit{
		{Name: "r", Rate: &Rate{Count: 10, Per: time.Minute, Burst: 1}},
		{Name: "q", Quota: &Quota{Count: 10, Window: Calendar, Unit: Day, Zone: time.UTC}},
	}
	r := Rules{Jitter: 5 * time.Millisecond}
	if passed := r.PassedAfter(limits, time.Second); passed < time.Minute+time.Second || passed > time.Minute+3*time.Second {
		t.Errorf("a rate passes after %s", passed)
	}
	gone := r.Gone(limits, now, time.Second, 30*time.Second).Time()
	if gone.Before(time.Date(2026, 3, 5, 0, 0, 0, 0, time.UTC)) || gone.After(time.Date(2026, 3, 5, 0, 0, 10, 0, time.UTC)) {
		t.Errorf("gone at %s", gone)
	}
}

// TestGoneAtTheEdgeOfAPeriod checks that a call whose slot lies in the next period counts there: slots are given ahead,
// and the vendor's clock may be ahead by the jitter.
func TestGoneAtTheEdgeOfAPeriod(t *testing.T) {
	t.Parallel()
	midnight := time.Date(2026, 3, 5, 0, 0, 0, 0, time.UTC)
	limits := []Limit{{Name: "q", Quota: &Quota{Count: 10, Window: Calendar, Unit: Day, Zone: time.UTC}}}
	gone := Rules{Jitter: 5 * time.Millisecond}.Gone(limits, MicrosOf(midnight.Add(-500*time.Millisecond)), time.Second, time.Second).Time()
	if next := midnight.AddDate(0, 0, 1); gone.Before(next) {
		t.Errorf("gone at %s, want after %s", gone, next)
	}
}
