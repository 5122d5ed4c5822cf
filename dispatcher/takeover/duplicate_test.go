package takeover

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/bucket/queue"
	"weir/ingest"
	"weir/ingest/await"
)

// TestCopyOfAnEndedJob checks that a job that is read, live or at a takeover, under the id of an ended job is not
// called unless it is another job. A copy is deleted. A job that may or may not be a copy is parked.
func TestCopyOfAnEndedJob(t *testing.T) {
	w, p := newSettling(t)
	now := time.Now()
	ago := func(s int) time.Time { return now.Add(-time.Duration(s) * time.Second) }
	dedupe := queue.NewDedupe(time.Minute)
	dedupe.Changing(time.Second, ago(60))
	q, err := queue.OpenQueue(t.Context(), queue.Options{
		Conn: w.Env.Conn, JetStream: w.Env.JS, Dedupe: dedupe, Others: true, Settings: queue.Settings{
			StreamSettings: queue.StreamSettings{Replicas: 1, Dedupe: time.Minute}, API: "pay", Partitions: 1, Capacity: 1000, MaxBody: 1 << 10,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Queue, p.Bucket = q, q.Partitions()[0]
	const waits, deleted, parked = "waits", "is deleted", "is parked"
	seq := uint64(100)
	for _, c := range []struct {
		what           string
		accepted, came int // seconds ago
		live, found    string
	}{
		{"a copy", 120, 110, deleted, deleted},
		{"a job that came after the id was free", 400, 200, waits, waits},
		{"a job that came when dedupe was changed", 30, 20, parked, parked},
		{"a job that came before the one that ended", 30, 50, parked, waits}, // it has waited since, or has come back
	} {
		for _, found := range []bool{false, true} {
			seq++
			key, want := fmt.Sprint("k", seq), c.live
			if p.reader.replay = nil; found {
				p.reader.replay, want = newReplay(), c.found
			}
			q.Ended(queue.Finished{Key: key, DedupeID: "one", Seq: seq - 100, Accepted: ago(c.accepted)})
			unswept := p.Bucket.Unswept()
			p.reader.add(t.Context(), queue.Entry{Seq: seq, Key: key, Time: ago(c.came), Header: map[string][]string{
				ingest.HeaderMsgID: {ingest.StoredID(key, "one")}, ingest.HeaderJobID: {"one"},
			}})
			await.Return(t, "what the worker runs", w.Running.Wait)
			w.Mu.Lock()
			left := 0
			if q := w.Sched.Queues.Find(key); q != nil {
				left = q.Depth()
			}
			w.Mu.Unlock()
			got, letters := "is lost", lettersOf(t, w.Env.JS, key)
			switch gone := p.Bucket.Unswept() - unswept; {
			case left == 1 && gone == 0 && len(letters) == 0:
				got = waits
			case left == 0 && gone == 1 && len(letters) == 0:
				got = deleted
			case left == 0 && gone == 2 && len(letters) == 1 && strings.HasPrefix(letters[0], duplicateDetail):
				got = parked // and the mark of its end is to be deleted, too
			}
			if got != want {
				t.Errorf("%s, found at a takeover %v: it %s, want: it %s; its letters: %q", c.what, found, got, want, letters)
			}
		}
	}
}
