package judge

import (
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/weir-torture/internal/plan"
)

// changedTo changes the terms while the jobs of right are called. The new terms may be in force after one second, and
// certainly are a tenth of a second later.
func changedTo(change func(t *plan.Terms)) func(e *Evidence) {
	return func(e *Evidence) {
		second := e.Timeline[0].Terms
		change(&second)
		from := e.Began.Add(time.Second)
		e.Timeline = append(e.Timeline, plan.InForce{Terms: second, From: from, By: from.Add(100 * time.Millisecond)})
	}
}

// calledAgain adds a second call of a job, long after the first, with this key.
func calledAgain(e *Evidence, key string) {
	again := call(10, "k-1", 30*time.Second)
	again.Billed, again.Fields = false, nil
	if key != "" {
		again.Fields = append(again.Fields, e.Arrivals[1].Fields[0])
		again.Fields[0].Value = key
	}
	e.Arrivals = append(e.Arrivals, again)
}

// TestJudgeChanges checks that arrivals are judged by the terms that may have been in force when they arrived.
func TestJudgeChanges(t *testing.T) {
	slower, faster := func(t *plan.Terms) { t.Rate = 2 }, func(t *plan.Terms) { t.Rate = 50 }
	noKey := func(t *plan.Terms) { t.Header = "" }
	for _, c := range []struct {
		name       string
		idempotent bool
		change     func(t *plan.Terms)
		spoil      func(e *Evidence)
		breaks     string
	}{
		{"faster when it may be", false, faster, func(e *Evidence) {
			for i := 4; i < 10; i++ {
				e.Arrivals[i].At = int64(time.Second) + int64(i)*int64(50*time.Millisecond)
			}
		}, ""},
		{"faster before it may be", false, faster, func(e *Evidence) {
			for i := range 10 {
				e.Arrivals[i].At = int64(i) * int64(50*time.Millisecond)
			}
		}, "over-rate"},
		{"as fast as before while slots of then are called", false, slower, func(*Evidence) {}, ""},
		{"as fast as before for ever", false, slower, func(e *Evidence) {
			for i := 4; i < 10; i++ {
				e.Arrivals[i].At += int64(10 * time.Second)
			}
		}, "over-rate"},
		{"repeated with the key of before", true, noKey, func(e *Evidence) { calledAgain(e, "k-1") }, ""},
		{"repeated without a key", true, noKey, func(e *Evidence) { calledAgain(e, "") }, "called twice"},
		{"repeated in quotation marks", true, func(t *plan.Terms) { t.Quoted = true }, func(e *Evidence) { calledAgain(e, `"k-1"`) }, "called twice"},
		{"called again after what meant that nothing was done", false, func(t *plan.Terms) { t.Takes502 = true }, func(e *Evidence) {
			e.Arrivals[5].Status, e.Arrivals[5].Billed = 502, false
			again := call(10, "k-5", 30*time.Second)
			e.Arrivals = append(e.Arrivals, again)
		}, ""},
		{"called again after what did not mean it yet", false, func(t *plan.Terms) { t.Takes502 = true }, func(e *Evidence) {
			e.Arrivals[1].Status, e.Arrivals[1].Billed = 502, false
			calledAgain(e, "k-1")
		}, "called twice"},
		{"spent more than the ledger knows", false, faster, func(e *Evidence) { spends(e, 1000) }, "spent"},
		{"spent less than the ledger knows", false, faster, func(e *Evidence) { spends(e, 3) }, "spent"},
		{"spent what the ledger knows", false, faster, func(e *Evidence) { spends(e, 10) }, ""},
		{"too much resident", false, faster, func(e *Evidence) {
			e.KnowsMemory, e.Memory = true, []MemoryLife{{Limit: 128, Peak: 300}}
		}, "memory"},
		{"died under a limit", false, faster, func(e *Evidence) { e.Memory = []MemoryLife{{Limit: 128, Died: true}} }, "memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := right(c.idempotent)
			changedTo(c.change)(e)
			c.spoil(e)
			r := Judge(e)
			if got := strings.Join(brokenIn(r), ","); got != c.breaks {
				t.Errorf("broken: %q, want %q: %+v", got, c.breaks, r)
			}
		})
	}
}

// spends makes weir report this spending, in hundredths, at a price of one per call. Only an idle weir was killed.
func spends(e *Evidence, cents int) {
	e.Spent = &cents
	e.Kills[0].What = Idle
	e.Kills = append(e.Kills, Kill{What: "worker", At: e.Kills[0].At})
	for i := range e.Timeline {
		e.Timeline[i].Terms.Price = 1
	}
}

// brokenIn returns the names of the promises that a report does not find kept.
func brokenIn(r *Report) []string {
	var names []string
	for _, f := range r.Findings {
		if f.Outcome != bucket.Pass {
			names = append(names, f.Name)
		}
	}
	return names
}
