package torture

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket"
)

// changedTo changes the terms while the jobs of right are called. The new terms may be in force after one second, and
// certainly are a tenth of a second later.
func changedTo(change func(t *terms)) func(e *Evidence) {
	return func(e *Evidence) {
		second := e.Timeline[0].terms
		change(&second)
		from := e.Began.Add(time.Second)
		e.Timeline = append(e.Timeline, inForce{terms: second, from: from, by: from.Add(100 * time.Millisecond)})
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
	slower, faster := func(t *terms) { t.rate = 2 }, func(t *terms) { t.rate = 50 }
	noKey := func(t *terms) { t.header = "" }
	for _, c := range []struct {
		name       string
		idempotent bool
		change     func(t *terms)
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
		{"repeated in quotation marks", true, func(t *terms) { t.quoted = true }, func(e *Evidence) { calledAgain(e, `"k-1"`) }, "called twice"},
		{"called again after what meant that nothing was done", false, func(t *terms) { t.takes502 = true }, func(e *Evidence) {
			e.Arrivals[5].Status, e.Arrivals[5].Billed = 502, false
			again := call(10, "k-5", 30*time.Second)
			e.Arrivals = append(e.Arrivals, again)
		}, ""},
		{"called again after what did not mean it yet", false, func(t *terms) { t.takes502 = true }, func(e *Evidence) {
			e.Arrivals[1].Status, e.Arrivals[1].Billed = 502, false
			calledAgain(e, "k-1")
		}, "called twice"},
		{"spent more than the ledger knows", false, faster, func(e *Evidence) { spends(e, 1000) }, "spent"},
		{"spent less than the ledger knows", false, faster, func(e *Evidence) { spends(e, 3) }, "spent"},
		{"spent what the ledger knows", false, faster, func(e *Evidence) { spends(e, 10) }, ""},
		{"too much resident", false, faster, func(e *Evidence) {
			e.KnowsMemory, e.Memory = true, []memoryLife{{Limit: 128, Peak: 300}}
		}, "memory"},
		{"died under a limit", false, faster, func(e *Evidence) { e.Memory = []memoryLife{{Limit: 128, Died: true}} }, "memory"},
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
	e.Kills[0].What = idle
	e.Kills = append(e.Kills, Kill{What: "worker", At: e.Kills[0].At})
	for i := range e.Timeline {
		e.Timeline[i].terms.price = 1
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

// TestTimeline checks that earlier configurations are possible until a later one is certainly in force, and a moment
// longer, even if it is unknown whether one of them ever took effect.
func TestTimeline(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(1000+seconds), 0) }
	l := timeline{
		{terms: terms{rate: 1}},
		{terms: terms{rate: 2}, from: at(10), by: at(11)},
		{terms: terms{rate: 3}, from: at(20)},
		{terms: terms{rate: 4}, from: at(30), by: at(31)},
	}
	for second, want := range map[int][]int{5: {1}, 11: {1, 2}, 15: {2}, 25: {2, 3}, 31: {2, 3, 4}, 40: {4}} {
		var rates []int
		for _, p := range l.possible(at(second), at(second)) {
			rates = append(rates, p.rate)
		}
		if !slices.Equal(rates, want) {
			t.Errorf("second %d: %v, want %v", second, rates, want)
		}
	}
}

// TestChanges checks that a seed makes one series of changes, that each of them changes something, and that every
// setting has its turn.
func TestChanges(t *testing.T) {
	o := Options{Seed: 1, Server: Embedded, Rate: 20, Jobs: 40, ConfigChanges: 2 * len(Settings())}
	one := newPlan(&o)
	if !reflect.DeepEqual(one, newPlan(&o)) {
		t.Error("the same seed made two plans")
	}
	seen, before := map[string]int{}, firstTerms(&o)
	for _, c := range one.changes {
		seen[c.setting]++
		if c.terms == before {
			t.Errorf("%s changed nothing", c.setting)
		}
		before = c.terms
		before.gone = false
	}
	for _, name := range Settings() {
		if seen[name] != 2 {
			t.Errorf("%s changed %d times", name, seen[name])
		}
	}
	o.Takeovers = 1
	for _, c := range newPlan(&o).changes {
		if c.terms.account != "" || c.terms.quota > 0 || c.terms.budget > 0 {
			t.Fatalf("%s: two weirs without Redis share a limit: %+v", c.setting, c.terms)
		}
	}
	if o.Settings = []string{"limits", "quota"}; o.validateSettings() == nil {
		t.Error("nothing is left to change")
	}
	if o.Settings = []string{"weather"}; o.validateSettings() == nil {
		t.Error("there is no setting of that name")
	}
}
