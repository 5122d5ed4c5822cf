package dispatcher

import (
	"fmt"
	"testing"

	"weir/bucket"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
	"weir/dispatcher/schedule/limits"
	"weir/ingest"
)

// TestSilentAnswers checks that a call whose answer should report its units and does not is charged the most that any
// answer has reported.
func TestSilentAnswers(t *testing.T) {
	limit := bucket.Limit{Name: "tokens", Cost: ingest.Units(1).SettledBy(ingest.Source{Pointer: "/n"})}
	api := &httpcall.API{Name: "llm", Rules: bucket.Rules{Shared: []bucket.Limit{limit}}}
	d := dispatcherOf(Options{})
	d.env.Metrics = lane.NewMetrics(nil)
	w := bareWorker(d, "llm")
	job := &lane.Job{Job: &schedule.Job{Queue: &schedule.KeyQueue{Key: "k"}, Call: limits.Call{Costs: []int64{1}}}, Message: &ingest.Job{}, Terms: &lane.Terms{API: api}}
	for i, c := range []struct {
		status int
		units  int64 // -1: nothing
		want   string
	}{
		{200, -1, "as estimated [tokens]"},
		{200, 400, "400 []"},
		{200, 300, "300 []"},
		{200, -1, "400 [tokens]"},
		{500, -1, "400 [tokens]"},
		{0, -1, "400 [tokens]"},
		{429, -1, "as estimated []"},
		{400, -1, "as estimated []"},
		{200, 0, "0 []"},
	} {
		r := httpcall.Response{Sent: true, Status: c.status, Units: map[string]int64{}}
		if c.units >= 0 {
			r.Units["/n"] = c.units
		}
		took := w.caller.settleUnits(job, r)
		got := "as estimated"
		if took.actual != nil {
			got = fmt.Sprint(took.actual[0])
		}
		if got = fmt.Sprint(got, " ", took.silent); got != c.want {
			t.Errorf("answer %d: %s, want %s", i, got, c.want)
		}
	}
}
