package recovery_test

import (
	"testing"

	"weir/dispatcher/recorder"
	"weir/dispatcher/recovery"
)

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		what  string
		found recovery.Found
		want  recovery.Fate
	}{
		{"never called", recovery.Found{}, recovery.Waits},
		{"called and to be called again", recovery.Found{Recorded: 2}, recovery.Waits},
		{"its intent is of a call that is recorded", recovery.Found{Recorded: 1, Intended: 1}, recovery.Waits},
		{"an intent and nothing else", recovery.Found{Intended: 1}, recovery.Lost},
		{"an intent for one call more than is recorded", recovery.Found{Recorded: 2, Intended: 3}, recovery.Lost},
		{"a result without its record", recovery.Found{Intended: 1, Result: true}, recovery.HasResult},
		{"a result and its record", recovery.Found{Recorded: 1, Intended: 1, Result: true, Ended: true, Complete: true}, recovery.EndsByLast},
		{"a result, and the failure of the call before, which came late", recovery.Found{Recorded: 1, Intended: 2, Result: true, Ended: true}, recovery.HasResult},
		{"a result, and the mark of an end that came late", recovery.Found{Recorded: 1, Result: true, Ended: true, Ending: true}, recovery.HasResult},
		{"a record that says done, and a late mark", recovery.Found{Recorded: 1, Ended: true, Complete: true, Ending: true}, recovery.EndsByLast},
		{"its last record, and its call is noted as answered", recovery.Found{Recorded: 1, Intended: 1, Ended: true, Noted: recorder.Answered}, recovery.EndsByLast},
		{"its last record came late, and a later owner had begun a call by then", recovery.Found{Recorded: 1, Intended: 2, Ended: true}, recovery.EndsByLast},
		{"its deletion was lost", recovery.Found{Recorded: 1, Ended: true}, recovery.EndsByLast},
		{"it ended with its last call, and its letter may be missing", recovery.Found{Recorded: 5, Intended: 5, Ended: true}, recovery.EndsByLast},
		{"an end without a call", recovery.Found{Ending: true}, recovery.EndsByMark},
		{"an end decided on with an intent in store that no call followed", recovery.Found{Intended: 1, Ending: true}, recovery.EndsByMark},
		{"a later owner intended a call after that", recovery.Found{Intended: 1, Ending: true, Overruled: true}, recovery.Lost},
		{"its call is noted as not begun", recovery.Found{Intended: 1, Noted: recorder.Prepared}, recovery.Waits},
		{"its second call is noted as not begun", recovery.Found{Recorded: 1, Intended: 2, Noted: recorder.Prepared}, recovery.Waits},
		{"its call is noted as not begun, and has a result", recovery.Found{Intended: 1, Noted: recorder.Prepared, Result: true}, recovery.HasResult},
		{"its call is noted as begun", recovery.Found{Intended: 1, Noted: recorder.Begun}, recovery.Lost},
		{"its call is noted as sent", recovery.Found{Intended: 1, Noted: recorder.Left}, recovery.Lost},
		{"its call is noted as answered", recovery.Found{Intended: 1, Noted: recorder.Answered}, recovery.Answered},
		{"its call is noted as answered, and recorded", recovery.Found{Recorded: 1, Intended: 1, Noted: recorder.Answered}, recovery.Waits},
		{"its call is noted as answered, and has a result", recovery.Found{Intended: 1, Noted: recorder.Answered, Result: true}, recovery.HasResult},
		{"its call is noted as settled, and nothing is stored", recovery.Found{Intended: 1, Noted: recorder.Settled}, recovery.Lost},
		{"a later owner's intent is noted as not begun", recovery.Found{Intended: 1, Ending: true, Overruled: true, Noted: recorder.Prepared}, recovery.EndsByMark},
		{"a later owner's call is noted as answered", recovery.Found{Intended: 1, Ending: true, Overruled: true, Noted: recorder.Answered}, recovery.Answered},
		{"the api accepted it", recovery.Found{Recorded: 1, Submitted: true}, recovery.Polls},
		{"the api accepted it, and its intent is left", recovery.Found{Recorded: 1, Intended: 1, Submitted: true}, recovery.Polls},
		{"the api accepted it, and its process noted the answer", recovery.Found{Recorded: 1, Intended: 1, Submitted: true, Noted: recorder.Answered}, recovery.Polls},
		{"the api accepted it, and another owner had begun a call by then", recovery.Found{Recorded: 1, Intended: 2, Submitted: true}, recovery.Lost},
		{"its operation has a result", recovery.Found{Recorded: 1, Submitted: true, Result: true}, recovery.HasResult},
		{"its operation has ended", recovery.Found{Recorded: 1, Submitted: true, Ended: true, Complete: true, Result: true}, recovery.EndsByLast},
		{"its operation has failed", recovery.Found{Recorded: 1, Submitted: true, Ended: true}, recovery.EndsByLast},
		{"its operation was given up", recovery.Found{Recorded: 1, Submitted: true, Ending: true}, recovery.EndsByMark},
		{"another job's answer without its record", recovery.Found{Result: true, Reused: true}, recovery.HasResult},
		{"another job's answer, its mark and no record", recovery.Found{Result: true, Reused: true, Ending: true, Forgoing: true}, recovery.HasResult},
		{"another job's answer and its record", recovery.Found{Result: true, Reused: true, Ended: true, Complete: true}, recovery.EndsByLast},
		{"it was to end with another job's answer", recovery.Found{Ending: true, Forgoing: true}, recovery.Forgoes},
		{"the same, with an intent that no call followed", recovery.Found{Intended: 1, Ending: true, Forgoing: true}, recovery.Forgoes},
		{"the same, and a later owner intended a call", recovery.Found{Intended: 1, Ending: true, Forgoing: true, Overruled: true}, recovery.Lost},
		{
			"the same, and that call is noted as not begun",
			recovery.Found{Intended: 1, Ending: true, Forgoing: true, Overruled: true, Noted: recorder.Prepared},
			recovery.Forgoes,
		},
		{"the same, and that call is recorded", recovery.Found{Recorded: 1, Intended: 1, Ending: true, Forgoing: true, Overruled: true}, recovery.Waits},
		{"the same, and that call ended the job", recovery.Found{Recorded: 1, Ended: true, Ending: true, Forgoing: true}, recovery.EndsByLast},
		{"a later owner's call is recorded", recovery.Found{Recorded: 1, Intended: 1, Ending: true, Overruled: true}, recovery.Waits},
	} {
		if got := recovery.Judge(c.found); got != c.want {
			t.Errorf("%s: %+v is %d, want %d", c.what, c.found, got, c.want)
		}
	}
}

// TestUncalled: a job that has another job's answer was not called, unless a later owner may have begun a call.
func TestUncalled(t *testing.T) {
	for _, c := range []struct {
		what                 string
		found                recovery.Found
		uncalled, unrecorded bool
	}{
		{"its result is of its own call", recovery.Found{Result: true}, false, true},
		{"another job's answer", recovery.Found{Result: true, Reused: true}, true, false},
		{"the same, and an intent", recovery.Found{Result: true, Reused: true, Intended: 1}, false, true},
		{"the same, and its call is noted as not begun", recovery.Found{Result: true, Reused: true, Intended: 1, Noted: recorder.Prepared}, true, false},
		{"the same, and the intent was there before", recovery.Found{Result: true, Reused: true, Intended: 1, Ending: true, Forgoing: true}, true, false},
		{
			"the same, and the intent is of a later owner",
			recovery.Found{Result: true, Reused: true, Intended: 1, Ending: true, Forgoing: true, Overruled: true},
			false, true,
		},
		{"no result yet", recovery.Found{Ending: true, Forgoing: true}, false, false},
	} {
		if got := c.found.Uncalled(); got != c.uncalled {
			t.Errorf("%s: uncalled is %v", c.what, got)
		}
		if got := c.found.Unrecorded(); got != c.unrecorded {
			t.Errorf("%s: unrecorded is %v", c.what, got)
		}
	}
}

func TestLookedUp(t *testing.T) {
	lost := recovery.Found{Intended: 2, Recorded: 1}
	answered := recovery.Found{Intended: 1, Noted: recorder.Answered}
	unbegun := recovery.Found{Intended: 1, Noted: recorder.Prepared}
	for _, c := range []struct {
		what  string
		found recovery.Found
		more  recovery.LookedUp
		want  recovery.Fate
	}{
		{"nothing of a lost call", lost, recovery.LookedUp{}, recovery.Lost},
		{"nothing of an answered call", answered, recovery.LookedUp{}, recovery.Answered},
		{"nothing of a call that had not begun", unbegun, recovery.LookedUp{}, recovery.Waits},
		{"the record of the call before", lost, recovery.LookedUp{Recorded: 1}, recovery.Lost},
		{"its record, by which another call follows", lost, recovery.LookedUp{Recorded: 2}, recovery.Waits},
		{"the same of a call that is noted as answered", answered, recovery.LookedUp{Recorded: 1}, recovery.Waits},
		{"its last record", lost, recovery.LookedUp{Recorded: 2, Ended: true}, recovery.EndsByLast},
		{"its last record and its result", answered, recovery.LookedUp{Recorded: 1, Ended: true, Complete: true, Result: true}, recovery.EndsByLast},
		{"its result, and the late failure of the call before", lost, recovery.LookedUp{Recorded: 1, Ended: true, Result: true}, recovery.HasResult},
		{"the record of its acceptance", lost, recovery.LookedUp{Recorded: 2, Submitted: true}, recovery.Polls},
		{"the same of a call that is noted as answered", answered, recovery.LookedUp{Recorded: 1, Submitted: true}, recovery.Polls},
		{"the record of the call before, which was accepted", lost, recovery.LookedUp{Recorded: 1, Submitted: true}, recovery.Lost},
		{"the end of its operation", recovery.Found{Recorded: 1, Intended: 1, Submitted: true}, recovery.LookedUp{Recorded: 1, Ended: true}, recovery.EndsByLast},
		{"the result of its operation", recovery.Found{Recorded: 1, Intended: 1, Submitted: true}, recovery.LookedUp{Recorded: 1, Submitted: true, Result: true}, recovery.HasResult},
		{"another call's failure, after one that was accepted", recovery.Found{Recorded: 1, Intended: 2, Submitted: true}, recovery.LookedUp{Recorded: 2}, recovery.Waits},
		{"a result alone", lost, recovery.LookedUp{Result: true}, recovery.HasResult},
		{"a result and the record of the call before", lost, recovery.LookedUp{Recorded: 1, Result: true}, recovery.HasResult},
		{"an inquiry about its letter", lost, recovery.LookedUp{Asked: true}, recovery.EndsByLast},
		{"an inquiry, and the record that it followed", lost, recovery.LookedUp{Recorded: 2, Ended: true, Asked: true}, recovery.EndsByLast},
		{"an end, of a job whose call had not begun", unbegun, recovery.LookedUp{Recorded: 1, Ended: true}, recovery.EndsByLast},
		{"a result, of a job whose call is noted as not begun", unbegun, recovery.LookedUp{Result: true}, recovery.HasResult},
	} {
		if got := recovery.Judge(c.found.With(c.more)); got != c.want {
			t.Errorf("%s: %+v with %+v is %d, want %d", c.what, c.found, c.more, got, c.want)
		}
	}
}

// TestNothingIsUnlearned checks that a lookup never makes a job be called as if nothing had happened, unless it
// found the record of its call, and never makes it be called at all if it found its end.
func TestNothingIsUnlearned(t *testing.T) {
	for n := range 1 << 4 {
		l := recovery.LookedUp{Ended: n&1 != 0, Result: n&2 != 0, Asked: n&4 != 0, Submitted: n&8 != 0}
		for l.Recorded = range 4 {
			for i := range 3 * 4 * (int(recorder.Settled) + 1) {
				before := recovery.Found{Recorded: i % 3, Intended: i / 3 % 4, Noted: recorder.State(i / 12)}
				fate := recovery.Judge(before)
				if fate != recovery.Waits && fate != recovery.Lost && fate != recovery.Answered && fate != recovery.Polls {
					continue // nothing is looked up
				}
				got := recovery.Judge(before.With(l))
				switch {
				case got == recovery.Waits && fate != recovery.Waits && l.Recorded < before.Intended:
					t.Errorf("%+v with %+v waits to be called again, and may have been called", before, l)
				case l.Submitted && l.Recorded >= before.Intended && l.Recorded > 0 && got == recovery.Waits:
					t.Errorf("%+v with %+v waits to be called again, and the api has accepted it", before, l)
				case got != fate && (got == recovery.Lost || got == recovery.Answered):
					t.Errorf("%+v with %+v is %d, and was %d", before, l, got, fate)
				case (l.Asked || l.Result || l.Ended) && (got == recovery.Waits || got == recovery.Lost || got == recovery.Answered):
					t.Errorf("%+v with %+v has ended, and is %d", before, l, got)
				}
			}
		}
	}
}

// TestNothingThatMayHaveBeenCalledWaits tries every possible Found: a job that may have been called without a record is
// never called as if nothing had happened, and one with a result is never called.
func TestNothingThatMayHaveBeenCalledWaits(t *testing.T) {
	bit := func(n, i int) bool { return n>>i&1 == 1 }
	for n := range 1 << 8 {
		for recorded := range 4 {
			for i := range 5 * (int(recorder.Settled) + 1) {
				intended := i % 5
				f := recovery.Found{
					Recorded: recorded, Intended: intended, Ended: bit(n, 0), Result: bit(n, 1), Ending: bit(n, 2), Overruled: bit(n, 3),
					Complete: bit(n, 4), Submitted: bit(n, 5), Forgoing: bit(n, 6), Reused: bit(n, 7), Noted: recorder.State(i / 5),
				}
				if f.Forgoing && !f.Ending || f.Reused && !f.Result {
					continue // a kind of end, and a kind of result
				}
				if f.Complete && !f.Ended {
					continue // only a final record says done
				}
				got := recovery.Judge(f)
				switch {
				case got == recovery.Waits && (f.Unrecorded() || intended > recorded && f.Noted != recorder.Prepared):
					t.Errorf("%+v waits to be called again, and may have been called", f)
				case f.Submitted && got == recovery.Waits:
					t.Errorf("%+v waits to be called again, and the api has accepted it", f)
				case got == recovery.Polls && (!f.Submitted || f.Unrecorded()):
					t.Errorf("%+v is polled", f)
				case got == recovery.Answered && (f.Noted != recorder.Answered || intended <= recorded):
					t.Errorf("%+v ends by an answer that was not noted", f)
				case f.Result && got != recovery.HasResult && !f.Complete, f.Complete && got != recovery.EndsByLast:
					t.Errorf("%+v has a result, and is %d", f, got)
				case f.Ended && got != recovery.EndsByLast && got != recovery.EndsByMark && got != recovery.HasResult:
					t.Errorf("%+v has ended, and is %d", f, got)
				case got == recovery.Lost && !f.Unrecorded():
					t.Errorf("%+v is lost, and every call of it is recorded", f)
				}
			}
		}
	}
}
