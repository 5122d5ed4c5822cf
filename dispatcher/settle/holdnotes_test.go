package settle

import (
	"context"
	"net/url"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ownership"
	"weir/dispatcher/schedule"
	"weir/ingest"
	"weir/ingest/await"
)

// TestHoldThatIsNotStored checks that a hold whose mark could not be stored leaves the former mark in force, so that
// the former mark is discarded later and a further hold with the same end is stored.
func TestHoldThatIsNotStored(t *testing.T) {
	d := newEnvOnServer(t)
	rules := bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Second, Burst: 1}, InFlight: 4}}
	q, err := queue.OpenQueue(t.Context(), queue.Options{
		Conn: d.Conn, JetStream: d.JS, Rules: rules,
		Settings: queue.Settings{StreamSettings: queue.StreamSettings{Replicas: 1, Dedupe: time.Minute}, API: "pay", Partitions: 1, Capacity: 10},
	})
	if err != nil {
		t.Fatal(err)
	}
	w := newSettlingRig(d, q, &httpcall.API{Name: "pay", URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Rule: &ingest.Rule{API: "pay"}, Rules: rules})
	p := w.opened(ownership.Tenure{})
	if p.Markers, err = q.Partitions()[0].Own(t.Context(), "me"); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	former := lane.HoldMark{Part: p, Seq: 4, Until: w.Now().Add(time.Minute)}
	w.notes.Marks["k"] = former
	for _, key := range []string{"k", "other"} {
		w.notes.keepHold(p, schedule.HoldChange{Queue: &schedule.KeyQueue{Key: key}, Until: former.Until.Add(time.Hour)})
	}
	_ = p.Markers.Run(ended) // it answers what waits with an error
	await.Return(t, "the marks", w.Running.Wait)
	if len(w.notes.Marks) != 1 || w.notes.Marks["k"] != former {
		t.Errorf("the marks are %+v", w.notes.Marks)
	}
}
