package settle

import (
	"context"
	"net/url"
	"strings"
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
	w, p := newHoldRig(t)
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

// TestHoldBehindALongerOne checks that the mark of a hold is kept until the mark of a longer hold is stored, whichever
// of them is answered first. If the longer one is stored, it alone is kept.
func TestHoldBehindALongerOne(t *testing.T) {
	for name, c := range map[string]struct {
		why      string // of the longer hold
		isStored bool
	}{
		"the longer one is stored":          {"asked to wait", true},
		"the longer one is refused later":   {strings.Repeat("x", 5<<20), false},
		"the longer one is refused at once": {strings.Repeat("x", 17<<20), false},
	} {
		t.Run(name, func(t *testing.T) {
			w, p := newHoldRig(t)
			shorter := w.Now().Add(time.Minute)
			longer := shorter.Add(time.Hour)
			key := &schedule.KeyQueue{Key: "k"}
			w.notes.keepHold(p, schedule.HoldChange{Queue: key, Until: shorter})
			w.notes.keepHold(p, schedule.HoldChange{Queue: key, Until: longer, Why: c.why})
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- p.Markers.Run(ctx) }()
			await.Return(t, "the marks", w.Running.Wait)
			stop()
			if err := await.Receive(t, "the end of the writer", ended); err != nil {
				t.Error(err)
			}
			want := shorter
			if c.isStored {
				want = longer
			}
			if m := w.notes.Marks["k"]; m.Until != want || m.Seq == 0 {
				t.Errorf("the mark in force is %+v, want one until %v", m, want)
			}
		})
	}
}

// TestHoldOfAPartitionGivenUp checks that a mark that is stored after its partition was given up stays in the partition,
// and is not kept.
func TestHoldOfAPartitionGivenUp(t *testing.T) {
	w, p := newHoldRig(t)
	w.notes.keepHold(p, schedule.HoldChange{Queue: &schedule.KeyQueue{Key: "k"}, Until: w.Now().Add(time.Minute)})
	w.Mu.Lock()
	w.Partitions[p.Number] = nil
	w.notes.ForgetPartitionLocked(p)
	w.Mu.Unlock()
	if len(w.notes.storing) > 0 {
		t.Errorf("being stored are %+v", w.notes.storing)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Markers.Run(ctx) }()
	await.Return(t, "the mark", w.Running.Wait)
	stop()
	if err := await.Receive(t, "the end of the writer", ended); err != nil {
		t.Error(err)
	}
	if len(w.notes.Marks) > 0 || p.Bucket.Unswept() > 0 {
		t.Errorf("the marks are %+v, and %d are to be deleted", w.notes.Marks, p.Bucket.Unswept())
	}
}

// newHoldRig returns a rig, and a tenure of its only partition whose markers are not written yet.
func newHoldRig(t *testing.T) (*settling, *lane.Owned) {
	t.Helper()
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
	w.Partitions[p.Number] = p
	if p.Markers, err = q.Partitions()[0].Own(t.Context(), "me"); err != nil {
		t.Fatal(err)
	}
	return w, p
}
