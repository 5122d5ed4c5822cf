package verify

import (
	"strings"
	"testing"
	"time"

	"weir/bucket"
)

// TestSaysWhyItFailed: where no window had too many calls, and they came nearer to each other than their rate has them, the report says by how
// much they were late and what helps.
func TestSaysWhyItFailed(t *testing.T) {
	limit := bucket.Limit{Name: "account", Rate: &bucket.Rate{Count: 100, Per: time.Second, Burst: 1, Counts: bucket.ByWindow}}
	for want, at := range map[string][]time.Duration{
		"account: no window had too many calls, but calls came up to 20ms later": {0, 30 * time.Millisecond, 30 * time.Millisecond, 30 * time.Millisecond},
		"": {0, 10 * time.Millisecond, 15 * time.Millisecond},
	} {
		c := bucket.NewChecking(bucket.Expectation{Limit: limit, Jitter: 5 * time.Millisecond})
		for _, at := range at {
			c.Add(bucket.Arrival{At: int64(at)})
		}
		var said strings.Builder
		if err := tellTotals(&said, []Report{{API: "pay", Limits: []LimitReport{limitOf(limit, c)}}}); err != nil {
			t.Fatal(err)
		}
		if got := said.String(); !strings.Contains(got, want) || want == "" && strings.Contains(got, "late") {
			t.Errorf("of calls at %v it says %q", at, got)
		}
	}
}
