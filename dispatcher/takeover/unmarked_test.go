package takeover

import (
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/recorder"
	"weir/dispatcher/recovery"
	"weir/ingest/await"
)

// TestFoundJobWithoutItsMark checks a job whose process died after it had stored the record of a failed call, and
// before the retry mark. The job gets the mark before it waits: a later owner may not read the ledger that far back.
func TestFoundJobWithoutItsMark(t *testing.T) {
	w, p := newSettling(t)
	s, err := w.Env.JS.Stream(t.Context(), p.Bucket.Name())
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		what     string
		intended int
		noted    recorder.State
	}{
		{"its intent", 1, recorder.Untold},
		{"the intent of a call that had not begun", 2, recorder.Prepared},
	} {
		f := foundOf(w, p, uint64(i+1), string(rune('a'+i)))
		later := bucket.MicrosOf(time.Now().Add(time.Minute))
		record := &ledger.Record{
			API: "pay", Key: f.Queue.Key, Job: f.Queue.Key, Stream: p.Bucket.Name(), Seq: f.Seq, Call: 1, Attempt: 1, Accepted: f.Accepted.Time(),
			Outcome: "retry", Detail: "it failed", Billed: deadletter.BilledUnknown, Idempotency: "Other-Key@0", NotBefore: later,
		}
		if _, err := w.Env.JS.PublishMsg(t.Context(), record.Message()); err != nil {
			t.Fatal(err)
		}
		last := record.Last()
		w.Mu.Lock()
		f.recallLocked(jobHistory{
			last: &last, intent: &lane.FoundIntent{Intent: queue.Intent{Seq: f.Seq, Call: c.intended}, Mark: &lane.IntentMark{Users: 2}, Stored: time.Now()},
		})
		f.found.Noted = c.noted
		fate := recovery.Judge(f.found)
		more := fate == recovery.Waits && f.followLocked(fate)
		w.Mu.Unlock()
		if !more {
			t.Errorf("%s: fate %d, and the job waits at once", c.what, fate)
			continue
		}
		await.Return(t, "the job's rest", func() { f.settle(t.Context(), fate) })
		msg, err := s.GetMsg(t.Context(), f.Marks.Last)
		if err != nil {
			t.Fatalf("%s: mark %d: %v", c.what, f.Marks.Last, err)
		}
		mark, err := (queue.Entry{Data: msg.Data}).RetryMark()
		if err != nil || mark.Seq != f.Seq || mark.Calls != 1 || mark.Attempts != 1 || mark.NotBefore != later || mark.Idempotency != "Other-Key@0" || mark.Reason != "it failed" {
			t.Errorf("%s: the mark %+v, %v", c.what, mark, err)
		}
		if w.Mu.Lock(); !f.Rests() || f.NotBefore != later || f.Calls != 1 || len(f.Announced.Marks) != 0 {
			t.Errorf("%s: rests %v until %d after %d calls, %d intents", c.what, f.Rests(), f.NotBefore, f.Calls, len(f.Announced.Marks))
		}
		w.Mu.Unlock()
	}
}
