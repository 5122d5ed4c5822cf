package status

import (
	"slices"
	"testing"

	"weir/deadletter"
)

// TestWorst checks that a check that could not be made hides no problem, whichever comes first.
func TestWorst(t *testing.T) {
	for want, levels := range map[Level][]Level{
		OK: {OK, OK}, Warning: {OK, Warning}, Unknown: {Unknown, Warning, OK}, Critical: {Warning, Critical, Unknown, OK},
	} {
		for range 2 {
			var checks []Check
			for _, l := range levels {
				checks = append(checks, Check{Level: l})
			}
			if worst := Worst(checks); worst != want {
				t.Errorf("of %v the worst is %s, want %s", levels, worst, want)
			}
			slices.Reverse(levels)
		}
	}
}

// TestChecksCountInWords checks the singular and the plural in the texts of checks.
func TestChecksCountInWords(t *testing.T) {
	s := &Status{APIs: []*API{{API: "one", Jobs: 1}, {API: "two", Jobs: 2}}, Letters: []Letters{
		{"one", deadletter.Overflow, 1}, {"two", deadletter.Overflow, 1}, {"two", deadletter.Expired, 1},
	}}
	var texts []string
	for _, c := range s.Checks(Thresholds{}) {
		texts = append(texts, c.Text)
	}
	for _, want := range []string{"one has 1 unfinished job", "one has 1 dead letter", "two has 2 unfinished jobs", "two has 2 dead letters"} {
		if !slices.Contains(texts, want) {
			t.Errorf("%q is not among %q", want, texts)
		}
	}
}
