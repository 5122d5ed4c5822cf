package takeover

import (
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
	"weir/ingest/await"
)

// TestWhatIsReadBackIsBounded checks that damaged or forged marks and records that hold for centuries hold for a day at
// most.
func TestWhatIsReadBackIsBounded(t *testing.T) {
	d := newEnv(t)
	q := payQueue(t, d)
	forged := bucket.MicrosOf(time.Date(2255, 1, 1, 0, 0, 0, 0, time.UTC))
	for what, plant := range map[string]func(w *rig, p *Takeover){
		"a hold of the api": func(w *rig, p *Takeover) {
			p.reader.takeMarker(markerEntry(t, queue.RetryEntry, 9, queue.RetryMark{NotBefore: forged, Pushback: true}))
		},
		"a hold of the key": func(w *rig, p *Takeover) {
			p.reader.takeMarker(markerEntry(t, queue.RetryEntry, 9, queue.RetryMark{Key: "a", NotBefore: forged, Pushback: true}))
		},
		"a denial": func(w *rig, p *Takeover) {
			p.reader.takeMarker(markerEntry(t, queue.RetryEntry, 9, queue.RetryMark{NotBefore: forged, Pushback: true, Denied: true}))
		},
		"a retry mark": func(w *rig, p *Takeover) {
			p.reader.takeMarker(markerEntry(t, queue.RetryEntry, 9, queue.RetryMark{Seq: 1, Calls: 1, NotBefore: forged, Pushback: true, Accepted: bucket.MicrosOf(stored(1))}))
		},
		"a record": func(w *rig, p *Takeover) {
			readLedger(t, w.Env, []ledger.Record{{
				API: "other", Key: "a", Stream: p.Bucket.Name(), Seq: 1, Call: 1, Outcome: ledger.PushedBack, NotBefore: forged, Dedupe: "1", Accepted: stored(1),
			}})
		},
	} {
		w, p := takingOver(t, d, q, false, nil)
		stop := storeMarkers(t, p)
		plant(w, p)
		p.reader.markersLoaded()
		p.reader.add(t.Context(), jobEntry("a", 1))
		p.reader.open(t.Context())
		await.Return(t, "the job's rest", w.Running.Wait)
		stop()
		var until time.Time
		if wait := w.Sched.At(w.Now()).Inspect(w.Sched.Queues.Find("a")).Waits; wait.Until != nil {
			until = *wait.Until
		}
		if most := w.Now().Add(schedule.MostHold).Time(); until.After(most) || until.Before(most.Add(-time.Hour)) {
			t.Errorf("%s: nothing is called before %v", what, until)
		}
	}
}
