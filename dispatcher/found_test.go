package dispatcher

import (
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/lease"
	"weir/bucket/queue"
	"weir/dispatcher/recovery"
	"weir/dispatcher/schedule"
)

// TestEndedByAnEarlierCall checks a job whose first call one owner takes for lost, calls again and dies; then the first
// call's final record arrives. The job has ended. The second call has no record: its key waits as after any call of
// unknown pace, and limits count it.
func TestEndedByAnEarlierCall(t *testing.T) {
	d := newShared2(t)
	q := payQueue2(t, d)
	for _, c := range []struct {
		intended int
		unsure   bool
		unlogged int
	}{{1, false, 0}, {2, true, 1}} {
		w, p := takingOver(t, d, q, true, new(lease.Membership))
		key := &schedule.KeyQueue{Key: "a", Partition: &p.Partition, Limits: &w.terms.api.Rules.Key}
		f := &foundJob{job: &job{Job: &schedule.Job{Seq: 1, Queue: key}, part: p.partition}, w: w.settler, known: recovery.Found{
			Recorded: 1, Intended: c.intended, Ended: true, Complete: true, Result: true,
		}}
		fate := recovery.Judge(f.known)
		if fate != recovery.EndsByLast {
			t.Fatalf("%+v: fate %d", c, fate)
		}
		if f.known.Unrecorded() {
			w.settler.unrecorded.await(f.job)
		}
		if !f.followLocked(fate) || key.Unsure != c.unsure {
			t.Errorf("%+v: its key is unsure: %v", c, key.Unsure)
		}
		if unlogged, all := w.settler.unrecorded.left(); unlogged != c.unlogged || !all {
			t.Errorf("%+v: %d calls that nobody wrote down, all told: %v", c, unlogged, all)
		}
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
	w.mu.Lock()
	f.recallLocked(jobHistory{mark: &foundMark{mark, 9}})
	w.mu.Unlock()
	j := f.job
	if j.NotBefore != later || j.Calls != 3 || j.attempts != 2 || j.crashes != 1 || j.Deaths != 4 || j.markSeq != 9 {
		t.Errorf("not before %d, want %d; calls %d, attempts %d, crashes %d, deaths %d, mark %d",
			j.NotBefore, later, j.Calls, j.attempts, j.crashes, j.Deaths, j.markSeq)
	}
	if j.Failed != "it failed" || j.status != 500 || j.answeredAt != 7 || j.doubt.identity != "Other-Key@0" {
		t.Errorf("failed %q, status %d, answered at %d, under %q", j.Failed, j.status, j.answeredAt, j.doubt.identity)
	}
	w.update(func(s *schedule.Schedule) { s.Finished(j.Job) })
}

// TestFoundJobKeepsItsCallsNumbers checks that an intent of a third call proves two earlier calls, even if no record of
// them was read. The next call does not get the number, and the record's message id, of an earlier one.
func TestFoundJobKeepsItsCallsNumbers(t *testing.T) {
	w, p := newSettling(t)
	f := foundOf(w, p, 1, "k")
	w.mu.Lock()
	defer w.mu.Unlock()
	f.recallLocked(jobHistory{intent: &foundIntent{Intent: queue.Intent{Seq: 1, Call: 3}, mark: &intentMark{seq: 5, users: 1}}})
	if f.Calls != 2 {
		t.Errorf("%d calls were made, want 2", f.Calls)
	}
}
