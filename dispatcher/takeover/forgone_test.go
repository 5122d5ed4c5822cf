package takeover

import (
	"testing"
	"time"

	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/recovery"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestAnotherJobsLateAnswer checks an owner that finds the mark of a job that was to end with another job's answer. If
// the result is stored, the job ends with it, as uncalled. If not, the owner bars a late one, and the job waits and is
// called; the result of that call is stored.
func TestAnotherJobsLateAnswer(t *testing.T) {
	w, p := newSettling(t)
	js := w.Env.JS
	store := func(of ledger.Job, prefix string, more nats.Header) *jetstream.PubAck {
		h := nats.Header{
			ingest.HeaderMsgID: {prefix + ledger.OriginOf(of.Stream, of.Seq, of.Accepted)}, ingest.HeaderJobID: {of.ID}, ledger.HeaderStatus: {"200"},
			ledger.HeaderFinishedAt: {ledger.Stamp(time.Now())},
		}
		for name, values := range more {
			h[name] = values
		}
		ack, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: ledger.ResultSubject(of.API, of.Key), Header: h})
		if err != nil {
			t.Fatal(err)
		}
		return ack
	}
	reused := func(of ledger.Job) *jetstream.PubAck {
		return store(of, ledger.ReusedPrefix, nats.Header{ledger.HeaderReused: {"another"}, ledger.HeaderCalls: {"0"}})
	}
	for i, stands := range []bool{true, false} {
		key, seq := string(rune('a'+i)), uint64(i+1)
		f := foundOf(w, p, seq, key)
		f.Calls = 0
		f.mark = &foundMark{RetryMark: queue.RetryMark{Seq: seq, Ends: queue.EndsReused, Reason: "the answer of job another"}, seq: 9, stored: time.Now()}
		f.found = recovery.Found{Ending: true, Forgoing: true}
		of := w.settler.Evidence.Of(f.Job)
		if stands {
			reused(of)
		}
		await.Return(t, "the job's end", func() { f.settle(t.Context(), recovery.Forgoes) })
		if ack := reused(of); !ack.Duplicate {
			t.Errorf("result stands: %v: a late one is stored", stands)
		}
		found, err := ledger.LookUp(t.Context(), js, of, time.Unix(0, 0))
		if err != nil {
			t.Fatal(err)
		}
		if letters := lettersOf(t, js, key); len(letters) != 0 {
			t.Errorf("result stands: %v: letters %q", stands, letters)
		}
		switch c := found.Record; {
		case !stands && (c != nil || found.Result != 0 || !f.Rests() || !f.MustCall):
			t.Errorf("a job without a result: record %+v, result %d, waits %v, must be called %v", c, found.Result, f.Rests(), f.MustCall)
		case !stands:
			if ack := store(of, "result.", nil); ack.Duplicate {
				t.Error("the result of the job's own call is kept out")
			}
		case c == nil || found.Result == 0 || !found.Reused:
			t.Errorf("a job with a result: record %+v, result %d", c, found.Result)
		case c.Outcome != ledger.Reused || c.ReusedFrom != "another" || !c.Final || c.Call != 0 || c.Sent || c.Billed != deadletter.NotBilled || c.Price != "0.00" ||
			c.Limits != nil || c.Costs != nil || !c.Planned.IsZero() || c.Result != found.Result:
			t.Errorf("its record: %+v", c)
		}
	}
	await.Return(t, "what the worker runs", w.Running.Wait)
}

// TestAnotherJobsAnswerBesideACall checks a job whose result is another job's answer, and of which a later owner may
// have begun a call. The job ends with the result, and the call has a record that charges it.
func TestAnotherJobsAnswerBesideACall(t *testing.T) {
	w, p := newSettling(t)
	f := foundOf(w, p, 1, "k")
	of := w.settler.Evidence.Of(f.Job)
	ack, err := w.Env.JS.PublishMsg(t.Context(), &nats.Msg{Subject: ledger.ResultSubject(of.API, of.Key), Header: nats.Header{
		ingest.HeaderMsgID: {ledger.ReusedPrefix + ledger.OriginOf(of.Stream, of.Seq, of.Accepted)}, ingest.HeaderJobID: {of.ID},
		ledger.HeaderStatus: {"200"}, ledger.HeaderCalls: {"0"}, ledger.HeaderPrice: {"0.00"}, ledger.HeaderReused: {"another"},
		ledger.HeaderCalledAt: {ledger.Stamp(time.Now().Add(-time.Hour))}, ledger.HeaderFinishedAt: {ledger.Stamp(time.Now())},
	}})
	if err != nil {
		t.Fatal(err)
	}
	intended := time.Now()
	f.result, f.intent = ack.Sequence, &lane.FoundIntent{Intent: queue.Intent{Call: 1, Accepted: f.Accepted}, Stored: intended, Mark: &lane.IntentMark{Users: 1}}
	f.found = recovery.Found{Result: true, Reused: true, Intended: 1}
	if fate := recovery.Judge(f.found); fate != recovery.HasResult || !f.followLocked(fate) {
		t.Fatalf("fate %d", fate)
	}
	await.Return(t, "the job's end", func() { f.settle(t.Context(), recovery.HasResult) })
	found, err := ledger.LookUp(t.Context(), w.Env.JS, of, time.Unix(0, 0))
	if err != nil || found.Record == nil {
		t.Fatalf("%v: %+v", err, found)
	}
	if c := found.Record; c.Outcome != ledger.Done || c.Call != 1 || !c.Sent || c.Started.Before(intended.Add(-time.Minute)) || !f.Queue.Unsure {
		t.Errorf("its record: %+v, its key's pace is unsure: %v", c, f.Queue.Unsure)
	}
	await.Return(t, "what the worker runs", w.Running.Wait)
}
