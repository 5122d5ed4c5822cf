package commands

import (
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/ops/outlook"
	"weir/cmd/weir/internal/ops/status"
	"weir/cmd/weir/internal/ops/whatif"
)

// TestCheckAheadOfAPart checks that a check of a part of the jobs is OK for no key, and says which part that was.
func TestCheckAheadOfAPart(t *testing.T) {
	until := time.Date(2026, time.March, 10, 12, 0, 0, 0, time.UTC)
	over := []whatif.OfKey{{Key: "vip", Jobs: 9, Overflowed: 2}}
	for name, c := range map[string]struct {
		of    outlook.Overflows
		level status.Level
		says  string
	}{
		"all":             {outlook.Overflows{Load: 1, Tried: 1}, status.OK, "pay: no key overflows by the jobs of 7d"},
		"a lost record":   {outlook.Overflows{Load: 1, Tried: 1, Gaps: outlook.Gaps{Unreadable: 1}}, status.OK, "no key overflows by the jobs of 7d; 1 record that cannot be read"},
		"until a time":    {outlook.Overflows{Load: 1, Tried: 1, Gaps: outlook.Gaps{ReadUntil: until}}, status.Unknown, "read only until 2026-03-10"},
		"not every key":   {outlook.Overflows{Load: 1, Tried: 1, LeftOut: 3}, status.Unknown, "3 jobs have more keys"},
		"not the growth":  {outlook.Overflows{Load: 20, Tried: 16, Days: 3}, status.Unknown, "brings 20 times as many jobs, and 16 times as many were tried"},
		"a part with one": {outlook.Overflows{Load: 1, Tried: 1, Overflowing: over, Gaps: outlook.Gaps{ReadUntil: until}}, status.Warning, "read only until 2026-03-10"},
	} {
		c.of.API = "pay"
		if got := checkOf(&c.of, "7d"); got.Level != c.level || !strings.Contains(got.Text, c.says) {
			t.Errorf("%s: %s %q, want %s and %q", name, got.Level, got.Text, c.level, c.says)
		}
	}
}
