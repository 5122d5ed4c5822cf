package lane

import (
	"testing"

	"weir/deadletter"
	"weir/dispatcher/schedule"
	"weir/ingest"

	"github.com/nats-io/nats.go"
)

// TestWhoMayForgo: only a job that was certainly never called may end with the answer of another one.
func TestWhoMayForgo(t *testing.T) {
	t.Parallel()
	redriven := func(billed deadletter.Billed) func(*Job) {
		return func(j *Job) {
			j.Message.Redrives, j.Message.Header = 1, nats.Header{deadletter.HeaderBilled: {string(billed)}}
		}
	}
	for _, c := range []struct {
		what   string
		change func(*Job)
		may    bool
	}{
		{"a new job", func(*Job) {}, true},
		{"a job that was called", func(j *Job) { j.Calls = 1 }, false},
		{"a job in doubt", func(j *Job) { j.Doubt.Recall(deadletter.BilledUnknown, "") }, false},
		{"a job whose call was not billed before a restart", func(j *Job) { j.Doubt.Recall(deadletter.NotBilled, "") }, true},
		{"a job whose result is barred", func(j *Job) { j.MustCall = true }, false},
		{"a redriven job that was never billed", redriven(deadletter.NotBilled), true},
		{"a redriven job that may have been billed", redriven(deadletter.BilledUnknown), false},
		{"a redriven job that was billed", redriven(deadletter.BilledYes), false},
		{"a redriven job of which nothing is said", redriven(""), true},
		{"a job that claims to have been billed", func(j *Job) { j.Message.Header = nats.Header{deadletter.HeaderBilled: {"yes"}} }, true},
	} {
		j := &Job{Job: &schedule.Job{}, Message: &ingest.Job{}}
		if c.change(j); j.mayForgo() != c.may {
			t.Errorf("%s may end with another job's answer: %v", c.what, !c.may)
		}
	}
}
