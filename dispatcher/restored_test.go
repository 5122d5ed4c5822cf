package dispatcher

import (
	"testing"
	"time"

	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/schedule"
)

// TestRestoredJobs checks that every job of a backup may have been called since, the last one too. It is called again
// only under an idempotency key; if the api takes none, it ends at once. Jobs behind the backup are like any other.
func TestRestoredJobs(t *testing.T) {
	w, p := newSettling(t)
	w.env.restored = &Restoration{At: time.Now()}
	p.restored = 5
	plain, keyed := w.terms.api, *w.terms.api
	keyed.Idempotency = &httpcall.Idempotency{Header: "Idempotency-Key"}
	for seq, restored := range map[uint64]bool{4: true, 5: true, 6: false} {
		for _, api := range []*httpcall.API{plain, &keyed} {
			w.terms = w.env.newTerms(api, nil)
			p.reader.expectLocked(queue.Entry{Seq: seq, Time: time.Now().Add(-time.Minute)})
			f := foundOf(w, p, seq, "k")
			if ends := restored && api == plain; (f.Deadline != 0) != ends {
				t.Errorf("job %d, under a key %t: it ends at %d", seq, api != plain, f.Deadline)
			}
			f.doubtRestoredLocked()
			if got := f.doubt.known() == deadletter.BilledUnknown; got != restored || p.isRestored(seq) != restored {
				t.Errorf("job %d: doubted %t, restored %t", seq, got, p.isRestored(seq))
			}
			if got, want := f.doubt.allows(api), !restored || api != plain; got != want {
				t.Errorf("job %d, under a key %t: may be called: %t", seq, api != plain, got)
			}
			w.update(func(s *schedule.Schedule) { s.Finished(f.job.Job) })
		}
	}
}
