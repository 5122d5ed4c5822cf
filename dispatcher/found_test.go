package dispatcher

import (
	"testing"

	"weir/bucket/lease"
	"weir/dispatcher/recovery"
	"weir/dispatcher/schedule"
)

// TestEndedByAnEarlierCall: where a call was taken for lost, and its record came after another owner had called again and died, the job has
// ended. That other call has no record: its key waits as after any call that nobody knows the pace of, and limits count it.
func TestEndedByAnEarlierCall(t *testing.T) {
	d := newShared(t)
	q := payQueue(t, d)
	for _, c := range []struct {
		intended int
		unsure   bool
		unlogged int
	}{{1, false, 0}, {2, true, 1}} {
		w, p := takingOver(t, d, q, true, new(lease.Membership))
		key := &schedule.KeyQueue{Key: "a", Partition: &p.Partition, Limits: &w.terms.api.Rules.Key}
		f := &foundJob{job: &job{Job: &schedule.Job{Seq: 1, Queue: key}, part: p}, w: w, known: recovery.Found{
			Recorded: 1, Intended: c.intended, Ended: true, Beside: true, Result: true,
		}}
		fate := recovery.Judge(f.known)
		if fate != recovery.EndsByLast {
			t.Fatalf("%+v: fate %d", c, fate)
		}
		if f.known.Unrecorded() {
			w.unrecorded.await(f.job)
		}
		if !f.followLocked(fate) || key.Unsure != c.unsure {
			t.Errorf("%+v: its key is unsure: %v", c, key.Unsure)
		}
		if unlogged, all := w.unrecorded.left(); unlogged != c.unlogged || !all {
			t.Errorf("%+v: %d calls that nobody wrote down, all told: %v", c, unlogged, all)
		}
	}
}
