package plans

import (
	"strings"
	"testing"

	"weir/cmd/weir/internal/ops/outlook"
)

// TestPlanSaysWhatItDoesNotKnow checks that nothing is said about the days ahead without a growth that is clear.
func TestPlanSaysWhatItDoesNotKnow(t *testing.T) {
	twelve := 12
	for name, c := range map[string]struct {
		growth *outlook.Growth
		days   *int
		says   string
	}{
		"too few days":  {nil, nil, "not known"},
		"unclear":       {&outlook.Growth{Days: 5, More: 1, Last: 8, Unclear: true}, nil, "not known"},
		"no growth":     {&outlook.Growth{Days: 5, Last: 8}, nil, "not within a year"},
		"a growth":      {&outlook.Growth{Days: 5, More: 1, Last: 8}, &twelve, "in 12 days"},
		"used up today": {nil, new(int), "already"},
	} {
		if got := daysAhead(c.days, c.growth); got != c.says {
			t.Errorf("%s: a limit is used up %q, want %q", name, got, c.says)
		}
		o := &outlook.Outlook{Growth: c.growth, Breaks: &outlook.Break{Load: 1.5, API: "pay", Key: "k", InDays: c.days}}
		if got := breakText(o); !strings.HasSuffix(got, "; by the growth: "+c.says) {
			t.Errorf("%s: the limits bear %q, want %q", name, got, c.says)
		}
		o.SoughtOn = []string{"2026-03-10"}
		if got := breakText(o); !strings.HasPrefix(got, "on the busiest days, which alone were tried, less than 1.5 times") {
			t.Errorf("%s: of the busiest days is said %q", name, got)
		}
	}
}
