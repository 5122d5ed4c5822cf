package outlook

import (
	"math"
	"testing"
	"time"
)

// TestGrowth checks the line through the days, and what it says about later ones.
func TestGrowth(t *testing.T) {
	if g := growthOf([]int{10, 20}); g != nil || g.grows() || g.in(10) != 1 || g.until(2) != nil {
		t.Errorf("two days give %+v", g)
	}
	g := growthOf([]int{100, 110, 120, 130, 140})
	if !g.grows() || math.Abs(g.More-10) > 1e-9 || math.Abs(g.Last-140) > 1e-9 || g.Days != 5 {
		t.Fatalf("a straight line gives %+v", g)
	}
	if in := g.in(7); math.Abs(in-1.5) > 1e-9 {
		t.Errorf("in a week %g times as many come, want 1.5", in)
	}
	for times, want := range map[float64]int{0.5: 0, 1: 0, 1.5: 7, 2: 14, 27: 364} {
		if days := g.until(times); days == nil || *days != want {
			t.Errorf("%g times as many come in %v days, want %d", times, days, want)
		}
	}
	if days := g.until(28); days != nil {
		t.Errorf("28 times as many come in %d days, which is more than a year", *days)
	}
	for name, jobs := range map[string][]int{
		"a week with a quiet end": {100, 105, 98, 103, 101, 20, 15},
		"none":                    {0, 0, 0},
		"the same":                {7, 7, 7, 7},
		"fewer":                   {50, 40, 30, 20},
		"a peak":                  {10, 11, 90, 12, 11},
	} {
		if g := growthOf(jobs); g.grows() || g.in(100) != 1 || g.until(1.1) != nil {
			t.Errorf("%s is a growth: %+v", name, g)
		}
	}
}

func TestWholeDays(t *testing.T) {
	at := func(text string) time.Time {
		when, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return when
	}
	day := at("2026-03-02T00:00:00Z").Unix() / 86400
	for _, c := range []struct {
		from, until string
		first, last int64
	}{
		{"2026-03-02T00:00:00Z", "2026-03-05T00:00:00Z", 0, 2},
		{"2026-03-02T00:00:01Z", "2026-03-04T23:59:59Z", 1, 1},
		{"2026-03-02T09:00:00Z", "2026-03-03T09:00:00Z", 1, 0},
	} {
		if first, last := wholeDays(at(c.from), at(c.until)); first != day+c.first || last != day+c.last {
			t.Errorf("%s to %s: days %d to %d, want %d to %d", c.from, c.until, first-day, last-day, c.first, c.last)
		}
	}
}
