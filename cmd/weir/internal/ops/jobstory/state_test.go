package jobstory

import (
	"testing"
	"time"

	"weir/dispatcher/desk"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
)

// TestStateOfRecords checks that a record with the outcome done ends its job, even while the job's message is still in
// its queue. The result is stored by then.
func TestStateOfRecords(t *testing.T) {
	at := time.Now()
	queued := func(accepted time.Time) *Queue {
		return &Queue{desk.QueuedJob{Accepted: accepted, State: &schedule.JobState{Phase: schedule.JobEnding, Calls: 1}}}
	}
	before := queued(at.Add(-time.Second))
	done, again := Step{At: at, What: Called, Outcome: ledger.Done, Call: 1}, Step{At: at, What: Called, Outcome: "retry", Call: 1}
	for _, c := range []struct {
		what  string
		queue *Queue
		steps []Step
		want  State
	}{
		{"a record that says done", before, []Step{done}, Done},
		{"the same of a job that is gone from its queue", nil, []Step{done}, Done},
		{"a job that was handed in again since", queued(at.Add(time.Second)), []Step{done}, Queued},
		{"a result whose record is to come", before, []Step{{At: at, What: Result}}, Done},
		{"a record of a call that another one follows", before, []Step{again}, Queued},
		{"a letter", nil, []Step{again, {At: at.Add(time.Second), What: Buried}}, Dead},
	} {
		j := &Job{Queue: c.queue, Steps: c.steps}
		if j.conclude(); j.State != c.want {
			t.Errorf("%s: %s, want %s", c.what, j.State, c.want)
		}
	}
}
