package judge

import (
	"slices"
	"testing"

	"weir/bucket"
)

// TestRedrivesAreJudged checks that each way in which a redrive can lose a job or call it twice is reported, and
// nothing else.
func TestRedrivesAreJudged(t *testing.T) {
	of := map[string]struct{}{}
	for _, id := range []string{"done", "again", "unknown", "lost", "called", "ended", "lettered"} {
		of[id] = struct{}{}
	}
	ends := &Ends{
		Results: map[string]int{"done": 1, "called": 1, "ended": 2, "lettered": 1},
		Letters: []Letter{{Job: "again"}, {Job: "unknown"}, {Job: "lettered"}, {Job: "of another"}},
	}
	calls := map[string]int{"done": 1, "unknown": 1, "called": 2, "ended": 1, "lettered": 1, "of another": 3}
	r := &Redrives{Letters: len(of), Gone: 1}
	r.Judge(of, ends, calls, false)
	if !slices.Equal(r.Lost, []string{"lost"}) || !slices.Equal(r.Twice, []string{"called", "ended", "lettered"}) || r.Called != 5 || r.Left != 3 {
		t.Errorf("%+v", r)
	}
	var told Report
	r.report(&told)
	i := slices.IndexFunc(told.findings(), func(f Finding) bool { return f.Name == "redriven" })
	if i < 0 || told.findings()[i].Outcome != bucket.Fail {
		t.Errorf("the verdict is %+v", told.findings())
	}
	repeats := &Redrives{}
	repeats.Judge(map[string]struct{}{"called": {}}, ends, calls, true)
	if len(repeats.Twice)+len(repeats.Lost) != 0 {
		t.Errorf("of an api that takes keys: %+v", repeats)
	}
}
