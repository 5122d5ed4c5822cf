package desk

import (
	"log/slog"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/natstest"
	"weir/bucket/queue"
	"weir/dispatcher/lane"
	"weir/dispatcher/ownership"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// payLane returns the lane of an api with one partition and no jobs.
func payLane(t *testing.T) (*lane.Lane, *lane.Owned) {
	t.Helper()
	js := natstest.JetStream(t)
	jobs, err := queue.OpenQueue(t.Context(), queue.Options{Conn: js.Conn(), JetStream: js, Settings: queue.Settings{
		StreamSettings: queue.StreamSettings{Replicas: 1, Dedupe: time.Minute}, API: "pay", Partitions: 1, Capacity: 10,
	}})
	if err != nil {
		t.Fatal(err)
	}
	l := lane.New(&lane.Env{Log: slog.New(slog.DiscardHandler), Metrics: lane.NewMetrics(nil)}, "pay", jobs, schedule.OwnClock)
	l.Sched = schedule.New(&schedule.Policy{}, schedule.Pace{}, func(string) bucket.Micros { return 0 })
	return l, lane.NewOwned(l, 0, ownership.Tenure{})
}

// TestIDOfAJobInMemory checks that a job's id comes from the message that is kept ahead, or from the job near its call.
func TestIDOfAJobInMemory(t *testing.T) {
	l, p := payLane(t)
	s := l.Sched
	q := s.Push("k", 3, &p.Partition)
	s.Push("k", 5, &p.Partition)
	s.Push("k", 7, &p.Partition)
	lane.JobLocked(s.Extract(q, 3)).Message = &ingest.Job{ID: "three"}
	p.Cache.KeepLocked(queue.Entry{Seq: 5, Header: map[string][]string{ingest.HeaderJobID: {"five"}}})
	for seq, want := range map[uint64]string{3: "three", 5: "five", 7: ""} {
		if id := idLocked(q, seq); id != want {
			t.Errorf("job %d is %q, want %q", seq, id, want)
		}
	}
}
