package settle

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/ownership"
	"weir/dispatcher/schedule"
	"weir/ingest"
	"weir/ingest/await"
)

// TestTimesAreStoredByTheWallClock checks that the ends of a hold, of a denial and of a retry's wait are stored in the
// wall clock's time even if that clock was set since the start, because a later process reads them by its wall clock.
// The job itself waits by elapsed time.
func TestTimesAreStoredByTheWallClock(t *testing.T) {
	const ahead = time.Hour
	d := newEnvOnServer(t)
	now := bucket.MicrosOf(time.Now())
	d.Now, d.Ahead = func() bucket.Micros { return now }, func() bucket.Micros { return bucket.Micros(0).Add(ahead) }
	rules := bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Second, Burst: 1}, InFlight: 4}}
	q, err := queue.OpenQueue(t.Context(), queue.Options{
		Conn: d.Conn, JetStream: d.JS, Rules: rules,
		Settings: queue.Settings{StreamSettings: queue.StreamSettings{Replicas: 1, Dedupe: time.Minute}, API: "pay", Partitions: 1, Capacity: 10},
	})
	if err != nil {
		t.Fatal(err)
	}
	markers := writing(t, d, q)
	if d.Calls, err = stream.NewWriter(d.Conn, nil, 10, 1<<20); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- d.Calls.Run(ctx) }()
	t.Cleanup(func() { stop(); _ = await.Receive(t, "the end of the ledger's writer", ended) })
	w := newSettlingRig(d, q, &httpcall.API{Name: "pay", URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Rule: &ingest.Rule{API: "pay"}, Rules: rules})
	p := w.opened(ownership.Tenure{})
	p.Markers = markers
	w.Partitions[0] = p
	j := lane.JobLocked(w.Sched.Extract(w.Sched.Push("k", 7, &p.Partition), 7))
	j.Settle()
	until := func(n int) bucket.Micros { return now.Add(time.Duration(n) * time.Minute) }
	w.settler.Again(t.Context(), j, &ledger.Record{API: "pay", Key: "k", Stream: p.Bucket.Name(), Seq: 7, Call: 1}, until(1))
	w.notes.keepHold(p, schedule.HoldChange{Queue: j.Queue, Until: until(2)})
	w.notes.keepDenial(until(3), "denied")
	await.Return(t, "the marks", w.Running.Wait)
	if j.NotBefore != until(1) {
		t.Errorf("the job waits for %v, want a minute", now.Until(j.NotBefore))
	}
	var stored []time.Duration
	for _, name := range []string{p.Bucket.Name(), "WEIR_CALLS"} {
		s, err := d.JS.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		for seq := s.CachedInfo().State.FirstSeq; seq <= s.CachedInfo().State.LastSeq; seq++ {
			msg, err := s.GetMsg(t.Context(), seq)
			if err != nil {
				continue // it was replaced
			}
			var of struct {
				NotBefore bucket.Micros `json:"not_before"`
			}
			if json.Unmarshal(msg.Data, &of) == nil && of.NotBefore != 0 {
				stored = append(stored, now.Until(of.NotBefore)-ahead)
			}
		}
	}
	slices.Sort(stored)
	if want := []time.Duration{time.Minute, time.Minute, 2 * time.Minute, 3 * time.Minute}; !slices.Equal(stored, want) {
		t.Errorf("stored are waits of %v by the wall clock, want %v: a record, a retry, a hold and a denial", stored, want)
	}
}
