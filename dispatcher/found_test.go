package dispatcher

import (
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// foundOf is a job that was found, of a key of its own.
func foundOf(w *apiWorker, p *partition, seq uint64, key string) *foundJob {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := &foundJob{w: w, job: jobLocked(w.s.Extract(w.s.Push(key, seq, &p.Partition), seq))}
	f.bind(w.terms)
	f.Settle()
	f.message, f.accepted, f.Calls = &ingest.Job{API: "pay", Key: key, ID: key}, bucket.MicrosOf(time.Now()), 1
	return f
}

// TestFoundCallIsAwaited: a call without a record counts as not accounted for from when its job is read.
func TestFoundCallIsAwaited(t *testing.T) {
	w, p := newSettling(t)
	w.mu.Lock()
	q := w.s.Push("k", 1, &p.Partition)
	p.resumeLocked(noMore(t), q, 1, jobHistory{intent: &foundIntent{Intent: queue.Intent{Seq: 1, Call: 1}, mark: &intentMark{users: 1}, stored: time.Now()}})
	w.mu.Unlock()
	await.Return(t, "what the worker runs", w.running.Wait) // it has stopped before it could store anything
	if unlogged, all := w.unrecorded.left(); unlogged != 0 || all {
		t.Errorf("of a lost call nothing is awaited: %d unlogged", unlogged)
	}
}

// TestLookedUpRecordBindsTheNextCall: where a record is looked up by which a job is to be called again, the next call goes by what it says:
// under which key the call was, and whether it may have been charged.
func TestLookedUpRecordBindsTheNextCall(t *testing.T) {
	w, p := newSettling(t)
	f := foundOf(w, p, 1, "k")
	f.lose(&foundIntent{Intent: queue.Intent{Call: 1, Deaths: 2}, stored: time.Now()})
	f.record = &ledger.Record{Call: 1, Attempt: 1, Detail: "it failed", Billed: deadletter.BilledUnknown, Idempotency: "Other-Key@0"}
	f.wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if f.doubt.identity != "Other-Key@0" || f.doubt.known() != deadletter.BilledUnknown || f.attempts != 1 || f.Deaths != 0 || f.lost != nil || !f.Rests() {
		t.Errorf("%+v: attempts %d, deaths %d, rests %v", f.doubt, f.attempts, f.Deaths, f.Rests())
	}
}

// TestAnswerOfAnotherJob: a letter never gets an answer that the api gave to another job, whose record has the place of the job's own.
func TestAnswerOfAnotherJob(t *testing.T) {
	w, p := newOwned(t)
	of := ledger.Job{API: "pay", Key: "k", ID: "j", Stream: p.bucket.Name(), Seq: 1}
	for _, mine := range []bool{true, false} {
		c := ledger.Record{API: "pay", Key: "k", Job: "j", Stream: of.Stream, Seq: of.Seq, Call: 1, Status: 400, Outcome: "rejected", Final: true}
		if !mine {
			c.Seq = 2
		}
		ack, err := w.d.opts.JetStream.PublishMsg(t.Context(), c.Message())
		if err != nil {
			t.Fatal(err)
		}
		if a, ok := w.evidence.answer(t.Context(), of, ack.Sequence); !ok || (a != nil) != mine {
			t.Errorf("mine %v: the answer is %+v: %v", mine, a, ok)
		}
	}
}

// TestRecordOfALoneResult: the record of a call of which only the result was stored says what the call's intent does, not what the api's
// present terms do.
func TestRecordOfALoneResult(t *testing.T) {
	w, p := newSettling(t)
	f := foundOf(w, p, 1, "k")
	if c := f.resultRecord(nats.Header{ledger.HeaderStatus: {"200"}}); c.Idempotency != "" {
		t.Errorf("without an intent: %+v", c)
	}
	f.lose(&foundIntent{Intent: queue.Intent{Call: 1, Timeout: time.Minute, Price: 250_000, Idempotency: "Other-Key@0"}, stored: time.Now()})
	if c := f.resultRecord(nats.Header{ledger.HeaderStatus: {"200"}}); c.Price != ledger.Money(250_000) || c.Idempotency != "Other-Key@0" || c.Status != 200 {
		t.Errorf("%+v", c)
	}
	w.update(func(s *schedule.Schedule) { s.Finished(f.Job) })
}
