package desk

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/natstest"
	"weir/bucket/queue"
	"weir/dispatcher/lane"
	"weir/dispatcher/ownership"
	"weir/dispatcher/schedule"
)

// TestCancellationWithoutAnEnd checks that a cancellation does not say that a job is cancelled whose end was not stored
// in time: if the partition is lost, its next owner calls the job.
func TestCancellationWithoutAnEnd(t *testing.T) {
	js := natstest.JetStream(t)
	jobs, err := queue.OpenQueue(t.Context(), queue.Options{Conn: js.Conn(), JetStream: js, Settings: queue.Settings{
		StreamSettings: queue.StreamSettings{Replicas: 1, Dedupe: time.Minute}, API: "pay", Partitions: 1, Capacity: 10,
	}})
	if err != nil {
		t.Fatal(err)
	}
	l := lane.New(&lane.Env{Log: slog.New(slog.DiscardHandler), Metrics: lane.NewMetrics(nil)}, "pay", jobs, schedule.OwnClock)
	l.Sched = schedule.New(&schedule.Policy{}, schedule.Pace{}, func(string) bucket.Micros { return 0 })
	p := lane.NewOwned(l, 0, ownership.Tenure{})
	p.Open = true
	l.Sched.Push("k", 1, &p.Partition)
	late, end := context.WithCancel(t.Context())
	end()
	_, err = (&API{Lane: l}).cancel(late, queue.Entry{Key: "k", Seq: 1}, "test")
	if err == nil || !strings.Contains(err.Error(), "not known whether") {
		t.Errorf("a job whose end is not stored: %v", err)
	}
}
