package desk

import (
	"testing"

	"weir/dispatcher/schedule"
)

// TestCallBeginsDuringList: a job whose call begins while a list is made is listed once, as being called.
func TestCallBeginsDuringList(t *testing.T) {
	t.Parallel()
	u := Unfinished{Jobs: []UnfinishedJob{
		{Stream: "A", Seq: 1, Phase: schedule.JobWaits}, {Stream: "B", Seq: 1, Phase: schedule.JobWaits}, {Stream: "A", Seq: 2, Phase: schedule.JobWaits},
	}}
	u.add([]UnfinishedJob{{Stream: "A", Seq: 1, Phase: schedule.JobCalling}, {Stream: "A", Seq: 9, Phase: schedule.JobEnding}})
	if len(u.Jobs) != 4 || u.Jobs[0].Calling() || u.Jobs[1].Calling() || !u.Jobs[2].Calling() || !u.Jobs[3].Calling() || u.Jobs[2].Seq != 1 {
		t.Errorf("%+v", u.Jobs)
	}
}
