package takeover

import (
	"context"
	"slices"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/recorder"
	"weir/dispatcher/recovery"
	"weir/dispatcher/settle"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// polledBy notes the jobs that are polled.
func polledBy(w *rig) *[]*lane.Job {
	var polled []*lane.Job
	w.settler.Operations.Use(
		func(j *lane.Job) { polled = append(polled, j) }, func(context.Context, []bucket.Use) {},
		func(*lane.Job, httpcall.Response) settle.Beyond { return settle.Beyond{} },
	)
	return &polled
}

var operation = &queue.Operation{
	Address: "https://api.example.com/operations/1", Started: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC), Until: bucket.MicrosOf(time.Now().Add(time.Hour)),
	Price: 250_000, Target: "there",
}

// TestFoundOperation checks that a job goes on being polled by its mark alone, and by its record alone. From the record
// it gets its mark first: a later owner may not read the ledger that far back.
func TestFoundOperation(t *testing.T) {
	w, p := newSettling(t)
	polled := polledBy(w)
	for i, c := range []struct {
		what   string
		record bool
		mark   bool
		intent bool
		lost   bool // the ledger is not read that far back
	}{
		{"the mark", false, true, false, false},
		{"the record", true, false, true, false},
		{"both, and the intent", true, true, true, false},
		{"the mark, and the intent of an end that did not come", false, true, true, true},
		{"an intent, whose call has a record that must be looked up", true, false, true, true},
	} {
		f := foundOf(w, p, uint64(i+1), string(rune('a'+i)))
		record := &ledger.Record{
			API: "pay", Key: f.Queue.Key, Job: f.Queue.Key, Stream: p.Bucket.Name(), Seq: f.Seq, Call: 1, Attempt: 1, Accepted: f.Accepted.Time(), Status: 202,
			Outcome: ledger.Submitted, Billed: deadletter.BilledYes, Operation: operation,
		}
		h := jobHistory{}
		if c.record {
			if _, err := w.Env.JS.PublishMsg(t.Context(), record.Message()); err != nil {
				t.Fatal(err)
			}
			if last := record.Last(); !c.lost {
				h.last = &last
			}
		}
		if c.mark {
			h.mark = &foundMark{RetryMark: queue.RetryMark{Seq: f.Seq, Calls: 1, Attempts: 1, Billed: "yes", Operation: operation}, seq: 900}
		}
		if c.intent {
			h.intent = &lane.FoundIntent{Intent: queue.Intent{Seq: f.Seq, Call: 1}, Mark: &lane.IntentMark{Users: 2}, Stored: time.Now()}
		}
		w.Mu.Lock()
		f.recallLocked(h)
		fate := recovery.Judge(f.found)
		more := f.followLocked(fate)
		w.Mu.Unlock()
		if more {
			await.Return(t, "the job's way", func() { f.settle(t.Context(), fate) })
		}
		w.Mu.Lock()
		if len(*polled) != i+1 || (*polled)[i] != f.Job || !f.IsPolled() || f.Calls != 1 || f.Attempts != 1 || f.Doubt.Charged() != deadletter.BilledYes {
			t.Errorf("%s: fate %d, polled %v, %d calls, %d attempts, billed %s", c.what, fate, f.IsPolled(), f.Calls, f.Attempts, f.Doubt.Charged())
		}
		if op := f.Operation; op == nil || op.Address != operation.Address || f.Price() != 250_000 {
			t.Errorf("%s: %+v, price %d", c.what, op, f.Price())
		}
		w.Mu.Unlock()
		if c.mark {
			continue
		}
		s, err := w.Env.JS.Stream(t.Context(), p.Bucket.Name())
		if err != nil {
			t.Fatal(err)
		}
		msg, err := s.GetMsg(t.Context(), f.Marks.Last)
		if err != nil {
			t.Fatalf("%s: mark %d: %v", c.what, f.Marks.Last, err)
		}
		if mark, err := (queue.Entry{Data: msg.Data}).RetryMark(); err != nil || mark.Operation == nil || mark.Operation.Address != operation.Address || mark.Calls != 1 {
			t.Errorf("%s: the mark %+v, %v", c.what, mark, err)
		}
	}
}

// TestResultOfAnOperationWithoutItsRecord checks that the result of an operation whose end has no record gets that
// record: it charges what the result costs beyond the call, and the record of the call stays as it is.
func TestResultOfAnOperationWithoutItsRecord(t *testing.T) {
	w, p := newSettling(t)
	polledBy(w)
	f := foundOf(w, p, 1, "k")
	of := w.settler.Evidence.Of(f.Job)
	submitted := &ledger.Record{
		API: "pay", Key: "k", Job: "k", Stream: p.Bucket.Name(), Seq: 1, Call: 1, Attempt: 1, Accepted: f.Accepted.Time(), Status: 202, Price: "0.25",
		Outcome: ledger.Submitted, Billed: deadletter.BilledYes, Operation: operation,
	}
	if _, err := w.Env.JS.PublishMsg(t.Context(), submitted.Message()); err != nil {
		t.Fatal(err)
	}
	ack, err := w.Env.JS.PublishMsg(t.Context(), &nats.Msg{Subject: ledger.ResultSubject(of.API, of.Key), Header: nats.Header{
		ingest.HeaderMsgID: {"result." + f.Origin()}, ingest.HeaderJobID: {of.ID}, ledger.HeaderStatus: {"200"}, ledger.HeaderCalls: {"1"},
		ledger.HeaderFinishedAt: {ledger.Stamp(time.Now())}, ledger.HeaderCalledAt: {ledger.Stamp(operation.Started)}, ledger.HeaderPrice: {"0.30"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	last := submitted.Last()
	w.Mu.Lock()
	f.recallLocked(jobHistory{last: &last, result: &ledger.StoredResult{At: ack.Sequence}})
	fate := recovery.Judge(f.found)
	f.followLocked(fate)
	unsure := f.Queue.Unsure
	w.Mu.Unlock()
	if fate != recovery.HasResult || unsure {
		t.Errorf("fate %d, the key's pace is unsure: %v", fate, unsure)
	}
	await.Return(t, "the job's end", func() { f.settle(t.Context(), fate) })
	found, err := ledger.LookUp(t.Context(), w.Env.JS, of, time.Unix(0, 0))
	if err != nil || found.Record == nil {
		t.Fatalf("%+v, %v", found, err)
	}
	if c := found.Record; !c.Polled || !c.Final || c.Outcome != ledger.Done || c.Price != "0.05" || c.Call != 1 || c.Operation == nil || c.Result != ack.Sequence ||
		c.Started.Before(operation.Started.Add(time.Second)) {
		t.Errorf("%+v", c)
	}
}

// TestFoundOperationHoldsItsSlotAtOnce checks that an operation holds its slot before anything about it is looked up or
// stored: calls of other jobs may start meanwhile. A job that another owner has called again since lets it go.
func TestFoundOperationHoldsItsSlotAtOnce(t *testing.T) {
	w, p := newSettling(t)
	var uses []bucket.Use
	w.settler.Operations.Use(
		func(*lane.Job) {}, func(_ context.Context, all []bucket.Use) { uses = append(uses, all...) },
		func(*lane.Job, httpcall.Response) settle.Beyond { return settle.Beyond{} },
	)
	api := *w.Terms.API
	api.Rules.Shared = []bucket.Limit{{Name: "one", InFlight: 1}}
	w.Terms = w.Env.NewTerms(&api, nil)
	held := *operation
	held.Holds = true
	last := (&ledger.Record{Call: 1, Outcome: ledger.Submitted, Operation: &held}).Last()
	answer := &recorder.Answer{Verdict: uint8(slices.Index(lane.Verdicts[:], httpcall.Submitted)), Status: 202, Operation: held.Address, Holds: true}
	intent := &lane.FoundIntent{Intent: queue.Intent{Call: 1}, Mark: &lane.IntentMark{Users: 2}, Stored: time.Now()}
	for i, c := range []struct {
		what  string
		h     jobHistory
		noted recorder.Found
		want  recovery.Fate
	}{
		{"a record without a mark", jobHistory{last: &last}, recorder.Found{}, recovery.Polls},
		{"the noted answer of a call", jobHistory{intent: intent}, recorder.Found{State: recorder.Answered, Answer: answer}, recovery.Answered},
	} {
		f := foundOf(w, p, uint64(i+1), string(rune('a'+i)))
		w.Mu.Lock()
		f.recallLocked(c.h)
		f.noted, f.found.Noted = c.noted, c.noted.State
		fate := recovery.Judge(f.found)
		more := f.followLocked(fate)
		w.Mu.Unlock()
		if fate != c.want || !more || len(uses) != i+1 || uses[i].Hold == 0 || uses[i].Grant.Serial >= 0 {
			t.Errorf("%s: fate %d, and the store is told %+v", c.what, fate, uses)
		}
		w.settler.Unrecorded.AccountedFor(f.Job)
	}
	f := foundOf(w, p, 9, "z")
	f.Operation = &held
	await.Return(t, "its way back to its queue", func() { f.wait(t.Context()) })
	if end := uses[len(uses)-1]; len(uses) != 3 || end.Hold != 0 || f.Operation != nil || !f.Rests() {
		t.Errorf("the store is told %+v, the job rests %v with %+v", uses, f.Rests(), f.Operation)
	}
}
