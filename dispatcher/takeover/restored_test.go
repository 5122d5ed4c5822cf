package takeover

import (
	"testing"
	"time"

	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
)

// TestRestoredJobs checks that every job of a backup, the last one included, counts as perhaps called since the backup.
// It is called again only under an idempotency key; if the api takes none, it ends at once. Jobs that came after the
// backup are like any other.
func TestRestoredJobs(t *testing.T) {
	w, p := newSettling(t)
	w.Env.Restored = &lane.Restoration{At: time.Now()}
	p.Restored = 5
	plain, keyed := w.Terms.API, *w.Terms.API
	keyed.Idempotency = &httpcall.Idempotency{Header: "Idempotency-Key"}
	packs := keyed
	packs.Pack = &httpcall.Pack{Jobs: 5} // under which keys they were called since is unknown
	for seq, restored := range map[uint64]bool{4: true, 5: true, 6: false} {
		for _, api := range []*httpcall.API{plain, &keyed, &packs} {
			w.Terms = w.Env.NewTerms(api, nil)
			p.reader.expectLocked(queue.Entry{Seq: seq, Time: time.Now().Add(-time.Minute)})
			f := foundOf(w, p, seq, "k")
			if ends := restored && api != &keyed; (f.Deadline != 0) != ends {
				t.Errorf("job %d, under a key %t: it ends at %d", seq, api == &keyed, f.Deadline)
			}
			f.RecallLocked()
			if got := f.Doubt.Charged() == deadletter.BilledUnknown; got != restored || p.IsRestored(seq) != restored {
				t.Errorf("job %d: doubted %t, restored %t", seq, got, p.IsRestored(seq))
			}
			if got, want := f.Doubt.Allows(api, "", time.Now()), !restored || api == &keyed; got != want {
				t.Errorf("job %d, under a key %t: may be called: %t", seq, api == &keyed, got)
			}
			w.Update(func(s *schedule.Schedule) { s.Finished(f.Job.Job) })
		}
	}
}
