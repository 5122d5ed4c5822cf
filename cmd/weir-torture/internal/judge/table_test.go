package judge

import (
	"testing"
	"time"

	"weir/cmd/weir-torture/internal/plan"
)

// TestRow checks that a line of the table has the figures of its report, and names what was broken.
func TestRow(t *testing.T) {
	e := rightFleet()
	e.Options.Seed, e.Took = 7, time.Minute
	if got, want := Judge(e).Row(), "| 7 | 1 | 100 | 0 | 0 | 0 | 0 | 0 | 0 | 1m0s | PASS |\n"; got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	delete(e.Ends.Results, "k-3")
	e.Strikes = append(e.Strikes, Strike{Kind: plan.FlipNode, At: e.Strikes[0].At, Ended: e.Strikes[0].Ended, Over: e.Strikes[0].Over, Unmended: "S"})
	e.Calm = nil
	if got, want := Judge(e).Row(), "| 7 | 2 | 100 | 1 | 0 | 0 | 0 | 0 | 1 | 1m0s | FAIL: lost; in doubt: work share |\n"; got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	one := Report{Seed: 8, WorkerKills: 3, ServerKills: 2, Faults: map[plan.Kind]int{plan.StopWorker: 4}, EndedTwice: 1, CalledTwice: 2, BilledTwice: 3}
	if got, want := one.Row(), "| 8 | 9 | 0 | 0 | 6 | 0 | 0 | 0 | 0 | 0s | PASS |\n"; got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}
