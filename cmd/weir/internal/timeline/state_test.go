package timeline

import (
	"testing"
	"time"

	"weir/dispatcher"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
)

// TestStateOfRecords: a record that was stored beside its result ends its job where the job is not in its queue any more, and one whose
// result was not kept ends none.
func TestStateOfRecords(t *testing.T) {
	at := time.Now()
	inQueue := func() *Queue {
		return &Queue{dispatcher.QueuedJob{Accepted: at.Add(-time.Second), State: &schedule.JobState{Phase: schedule.JobEnding, Calls: 1}}}
	}
	done := Step{At: at, What: Called, Outcome: ledger.Done, Call: 1, id: "a.1"}
	beside := done
	beside.beside = true
	not := Step{At: at.Add(time.Second), What: Called, Outcome: "retry", Call: 1, id: "a.1 unkept", unkept: true}
	letter := Step{At: at.Add(2 * time.Second), What: Buried}
	result := Step{At: at, What: Result}
	for _, c := range []struct {
		what   string
		queue  *Queue
		unkept bool
		steps  []Step
		want   State
	}{
		{"a record that proves its result", inQueue(), false, []Step{done}, Done},
		{"a record that came alone so far", inQueue(), false, []Step{beside}, Queued},
		{"a record beside its result", inQueue(), false, []Step{beside, result}, Done},
		{"a record of a job that is gone from its queue", nil, false, []Step{beside}, Done},
		{"a result that was not kept, to be called again", inQueue(), true, []Step{beside, not}, Queued},
		{"a result that was not kept", nil, true, []Step{beside, not, letter}, Dead},
	} {
		j := &Job{Queue: c.queue, Steps: c.steps, unkept: map[string]bool{"a.1": c.unkept}}
		if j.conclude(); j.State != c.want {
			t.Errorf("%s: %s, want %s", c.what, j.State, c.want)
		}
	}
}
