package recovery_test

import (
	"testing"

	"weir/dispatcher/recorder"
	"weir/dispatcher/recovery"
)

// TestCases names every case of recovery. Every possible Found belongs to exactly one case and gets the fate in its
// line.
func TestCases(t *testing.T) {
	open := func(f recovery.Found) bool { return f.Intended > f.Recorded } // a call was intended that has no record
	prepared := func(f recovery.Found) bool { return open(f) && f.Noted == recorder.Prepared }
	ends := func(f recovery.Found) bool { // by a mark that no later intent overrules
		return f.Ending && !f.Complete && !f.Result && (f.Intended == 0 || !f.Overruled || prepared(f))
	}
	forgoes := func(f recovery.Found) bool { return ends(f) && f.Forgoing && !f.Ended && f.Recorded == 0 }
	called := func(f recovery.Found) bool { return !f.Ended && !f.Result && (!ends(f) || f.Forgoing) && !forgoes(f) }
	cases := []struct {
		what string
		is   func(recovery.Found) bool
		want recovery.Fate
	}{
		{"a job and nothing else", func(f recovery.Found) bool { return called(f) && f.Intended == 0 && f.Recorded == 0 }, recovery.Waits},
		{"a record or a retry mark, and no later intent", func(f recovery.Found) bool { return called(f) && !open(f) && f.Recorded > 0 && !f.Submitted }, recovery.Waits},
		{"an intent whose call had not begun", func(f recovery.Found) bool { return called(f) && prepared(f) && !f.Submitted }, recovery.Waits},
		{
			"a record or a mark of a call that the api accepted, and no later intent",
			func(f recovery.Found) bool { return called(f) && !open(f) && f.Submitted }, recovery.Polls,
		},
		{
			"an accepted call, and the intent of another one that had not begun",
			func(f recovery.Found) bool { return called(f) && prepared(f) && f.Submitted }, recovery.Polls,
		},
		{
			"an intent whose call was answered, and nothing stored of it",
			func(f recovery.Found) bool { return called(f) && open(f) && f.Noted == recorder.Answered }, recovery.Answered,
		},
		{
			"an intent whose call may have been made", func(f recovery.Found) bool {
				return called(f) && open(f) && f.Noted != recorder.Prepared && f.Noted != recorder.Answered
			}, recovery.Lost,
		},
		{"a record that says done", func(f recovery.Found) bool { return f.Complete }, recovery.EndsByLast},
		{"a result, and nothing final", func(f recovery.Found) bool { return f.Result && !f.Ended }, recovery.HasResult},
		{"a result, and the late record of another call's failure", func(f recovery.Found) bool { return f.Result && f.Ended && !f.Complete }, recovery.HasResult},
		{
			"the record of a failure",
			func(f recovery.Found) bool { return f.Ended && !f.Complete && !f.Result && (!ends(f) || f.Forgoing) }, recovery.EndsByLast,
		},
		{"the mark of an end", func(f recovery.Found) bool { return ends(f) && !f.Ended && !f.Forgoing }, recovery.EndsByMark},
		{"the mark of an end, and a final record", func(f recovery.Found) bool { return ends(f) && f.Ended && !f.Forgoing }, recovery.EndsByMark},
		{"the mark of an end with another job's answer, and no result", forgoes, recovery.Forgoes},
	}
	met := make([]int, len(cases))
	bit := func(n, i int) bool { return n>>i&1 == 1 }
	for n := range 1 << 8 {
		for recorded := range 3 {
			for intended := range 4 {
				for noted := recorder.Untold; noted <= recorder.Settled; noted++ {
					f := recovery.Found{
						Recorded: recorded, Intended: intended, Noted: noted,
						Ended: bit(n, 0), Result: bit(n, 1), Ending: bit(n, 2), Overruled: bit(n, 3), Complete: bit(n, 4),
						Submitted: bit(n, 5), Forgoing: bit(n, 6), Reused: bit(n, 7),
					}
					if f.Submitted && recorded == 0 {
						continue // a record or a mark says so
					}
					if f.Forgoing && !f.Ending || f.Reused && !f.Result {
						continue // a kind of end, and a kind of result
					}
					if f.Complete && !f.Ended {
						continue // only a final record says done
					}
					if intended == 0 && (noted != recorder.Untold || f.Overruled) {
						continue // only an intent has notes, and only an intent overrules
					}
					var is []string
					for i, c := range cases {
						if !c.is(f) {
							continue
						}
						met[i]++
						is = append(is, c.what)
						if got := recovery.Judge(f); got != c.want {
							t.Errorf("%s: %+v is %d, want %d", c.what, f, got, c.want)
						}
					}
					if len(is) != 1 {
						t.Errorf("%+v belongs to %d cases: %q", f, len(is), is)
					}
				}
			}
		}
	}
	for i, c := range cases {
		if met[i] == 0 {
			t.Errorf("nothing is %q", c.what)
		}
	}
}
