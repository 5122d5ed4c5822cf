package takeover

import (
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/lease"
	"weir/bucket/queue"
	"weir/dispatcher/lane"
	"weir/dispatcher/recorder"
	"weir/dispatcher/recovery"
	"weir/dispatcher/schedule"
	"weir/ingest/await"
)

// TestEndedByAnEarlierCall checks a job whose first call an owner takes for lost; the owner calls the job again and
// dies, and then the first call's final record arrives. The job has ended. The second call has no record, unless it had
// not begun: its key waits as after any call of unknown pace, and limits count it.
func TestEndedByAnEarlierCall(t *testing.T) {
	d := newEnv(t)
	q := payQueue(t, d)
	done := recovery.Found{Recorded: 1, Intended: 1, Ended: true, Complete: true, Result: true}
	again, unbegun := done, done
	again.Intended, unbegun.Intended, unbegun.Noted = 2, 2, recorder.Prepared
	for _, c := range []struct {
		found    recovery.Found
		unsure   bool
		unlogged int
	}{{done, false, 0}, {again, true, 1}, {unbegun, false, 0}, {recovery.Found{Recorded: 1, Intended: 2, Ended: true}, true, 1}} {
		w, p := takingOver(t, d, q, true, new(lease.Membership))
		key := &schedule.KeyQueue{Key: "a", Partition: &p.Partition, Limits: &w.Terms.API.Rules.Key}
		f := &foundJob{Job: &lane.Job{Job: &schedule.Job{Seq: 1, Queue: key}, Part: p.Owned}, w: w.settler, found: c.found}
		fate := recovery.Judge(f.found)
		if fate != recovery.EndsByLast {
			t.Fatalf("%+v: fate %d", c, fate)
		}
		if f.found.Unrecorded() {
			w.settler.Unrecorded.Await(f.Job)
		}
		if !f.followLocked(fate) || key.Unsure != c.unsure {
			t.Errorf("%+v: its key is unsure: %v", c, key.Unsure)
		}
		if unlogged, all := w.settler.Unrecorded.Left(); unlogged != c.unlogged || !all {
			t.Errorf("%+v: %d calls are unlogged, all others recorded: %v", c, unlogged, all)
		}
	}
}

// TestRecordedFailureGetsItsLetter checks that a job whose last record is final becomes a letter, because its owner may
// have died before it stored the letter.
func TestRecordedFailureGetsItsLetter(t *testing.T) {
	w, p := newSettling(t)
	f := foundOf(w, p, 1, "k")
	f.last, f.found = lateFailure(f).Last(), recovery.Found{Recorded: 1, Intended: 1, Ended: true}
	fate := recovery.Judge(f.found)
	if fate != recovery.EndsByLast || !f.followLocked(fate) {
		t.Fatalf("fate %d", fate)
	}
	await.Return(t, "the job's end", func() { f.settle(t.Context(), fate) })
	if letters := lettersOf(t, w.Env.JS, "k"); len(letters) != 1 {
		t.Errorf("%d letters, want 1", len(letters))
	}
}

// TestFoundJobGoesOnFromItsMark checks that a found job with only a retry mark waits for the time in the mark, and
// keeps the mark's numbers of calls and attempts.
func TestFoundJobGoesOnFromItsMark(t *testing.T) {
	w, p := newSettling(t)
	f := foundOf(w, p, 1, "k")
	later := bucket.MicrosOf(time.Now().Add(time.Minute))
	mark := queue.RetryMark{
		Seq: 1, Calls: 3, Attempts: 2, Crashes: 1, Deaths: 4, NotBefore: later, Reason: "it failed", Status: 500, Answered: 7,
		Billed: "unknown", Idempotency: "Other-Key@0",
	}
	w.Mu.Lock()
	f.recallLocked(jobHistory{mark: &foundMark{RetryMark: mark, seq: 9}})
	w.Mu.Unlock()
	j := f.Job
	if j.NotBefore != later || j.Calls != 3 || j.Attempts != 2 || j.Crashes != 1 || j.Deaths != 4 || j.Marks.Last != 9 {
		t.Errorf("not before %d, want %d; calls %d, attempts %d, crashes %d, deaths %d, mark %d",
			j.NotBefore, later, j.Calls, j.Attempts, j.Crashes, j.Deaths, j.Marks.Last)
	}
	if j.Failed != "it failed" || j.Status != 500 || j.AnsweredAt != 7 || j.Doubt.Identity != "Other-Key@0" {
		t.Errorf("failed %q, status %d, answered at %d, under %q", j.Failed, j.Status, j.AnsweredAt, j.Doubt.Identity)
	}
	w.Update(func(s *schedule.Schedule) { s.Finished(j.Job) })
}

// TestFoundJobKeepsItsCallsNumbers checks that an intent of a third call proves two earlier calls, even if no record of
// them was read. So the next call does not get the number of an earlier one, nor the message id of its record.
func TestFoundJobKeepsItsCallsNumbers(t *testing.T) {
	w, p := newSettling(t)
	f := foundOf(w, p, 1, "k")
	w.Mu.Lock()
	defer w.Mu.Unlock()
	f.recallLocked(jobHistory{intent: &lane.FoundIntent{Intent: queue.Intent{Seq: 1, Call: 3}, Mark: &lane.IntentMark{Seq: 5, Users: 1}}})
	if f.Calls != 2 {
		t.Errorf("%d calls were made, want 2", f.Calls)
	}
}
