package dispatcher

import (
	"log/slog"
	"net/url"
	"testing"
	"time"

	"weir/bucket"
	"weir/ingest"
)

// TestReloadEnds: a job that is being ended, and whose message is not there any more, is let go of: at once where the partition
// is lost, since its new owner has deleted it, and elsewhere when the stream's leader has said so.
func TestReloadEnds(t *testing.T) {
	d := newShared(t)
	d.log, d.metrics = slog.New(slog.DiscardHandler), newMetrics(d, nil)
	rules := bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Second, Burst: 1}, InFlight: 4}}
	queue, err := bucket.OpenQueue(t.Context(), bucket.QueueOptions{
		Conn: d.opts.Conn, JetStream: d.opts.JetStream, Rules: rules,
		Settings: bucket.QueueSettings{StreamSettings: bucket.StreamSettings{Replicas: 1, Dedupe: time.Minute}, API: "pay", Partitions: 1, Capacity: 10},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, lost := range []bool{true, false} {
		l := newLane(d, LaneOptions{API: &API{Name: "pay", URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Rule: &ingest.Rule{API: "pay"}, Rules: rules}, Queue: queue})
		l.tat = func(string) bucket.Micros { return 0 }
		p := &part{bucket: queue.Partitions()[0], cache: map[uint64]bucket.Entry{}}
		p.lost.Store(lost)
		task := l.s.push("k", 7, p).extract(7)
		task.phase = settling
		again := make(chan struct{}, 1)
		tries := 1
		for ; !l.reload(t.Context(), task, func() { again <- struct{}{} }) && len(task.line.tasks) > 0; tries++ {
			task.missing += mostMissing - 2 // as if it had been tried so often
			select {
			case <-again:
			case <-time.After(90 * time.Second):
				t.Fatal("the job is neither let go of nor tried again")
			}
		}
		if want := map[bool]int{true: 1, false: 2}[lost]; tries != want || l.s.jobs != 0 {
			t.Errorf("lost %t: %d jobs are left after %d tries, want none after %d", lost, l.s.jobs, tries, want)
		}
		l.running.Wait()
	}
}
