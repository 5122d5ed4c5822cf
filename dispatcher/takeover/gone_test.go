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
)

// lateFailure is the final record of a found job's first call.
func lateFailure(f *foundJob) *ledger.Record {
	return &ledger.Record{
		API: "pay", Key: "k", Job: "k", Stream: f.Part.Bucket.Name(), Seq: 1, Call: 1, Attempt: 1, Accepted: f.Accepted.Time(),
		Outcome: string(deadletter.Rejected), Final: true, Billed: deadletter.NotBilled,
	}
}

// TestGoneResultBehindALateFailure checks a job whose first call has a late final record, whose second call is lost,
// and whose result was read and is gone. The lost call gets a record.
func TestGoneResultBehindALateFailure(t *testing.T) {
	w, p := newSettling(t)
	f := foundOf(w, p, 1, "k")
	of := w.settler.Evidence.Of(f.Job)
	f.last, f.result = lateFailure(f).Last(), 1<<40
	f.intent = &lane.FoundIntent{Intent: queue.Intent{Seq: 1, Call: 2}, Stored: time.Now()}
	f.found = recovery.Found{Recorded: 1, Ended: true, Intended: 2, Result: true}
	w.settler.Unrecorded.Await(f.Job)
	if fate := recovery.Judge(f.found); fate != recovery.HasResult || !f.followLocked(fate) {
		t.Fatalf("fate %d", fate)
	}
	f.IntendedAt = time.Time{} // all that the call may have left has been read
	await.Return(t, "the job's end", func() { f.settle(t.Context(), recovery.HasResult) })
	c, err := ledger.LookUp(t.Context(), w.Env.JS, of, time.Unix(0, 0))
	if err != nil || c.Record == nil || c.Record.Call != 2 || c.Record.Outcome != string(deadletter.Unknown) {
		t.Errorf("the newest record is %+v, %v", c.Record, err)
	}
	if unlogged, all := w.settler.Unrecorded.Left(); unlogged != 0 || !all {
		t.Errorf("%d calls are unlogged, all others recorded: %v", unlogged, all)
	}
}

// TestLateFailureThatIsLookedUp checks a job with a lost second call, for which a lookup finds the late final record of
// the first call. The job has ended, and the second call counts as unlogged.
func TestLateFailureThatIsLookedUp(t *testing.T) {
	w, p := newSettling(t)
	f := foundOf(w, p, 1, "k")
	if _, err := w.Env.JS.PublishMsg(t.Context(), lateFailure(f).Message()); err != nil {
		t.Fatal(err)
	}
	f.intent = &lane.FoundIntent{Intent: queue.Intent{Seq: 1, Call: 2}, Stored: time.Now()}
	f.found = recovery.Found{Recorded: 1, Intended: 2}
	w.settler.Unrecorded.Await(f.Job)
	if fate := recovery.Judge(f.found); fate != recovery.Lost || !f.followLocked(fate) {
		t.Fatalf("fate %d", fate)
	}
	await.Return(t, "the job's end", func() { f.settle(t.Context(), recovery.Lost) })
	if unlogged, all := w.settler.Unrecorded.Left(); unlogged != 1 || !all {
		t.Errorf("%d calls are unlogged, all others recorded: %v", unlogged, all)
	}
}

// TestLateResultBehindAFailure checks a job whose second call failed, and whose first call's result came late. The job
// ends as done without another record: both calls have theirs, and a third record would be charged as well.
func TestLateResultBehindAFailure(t *testing.T) {
	w, p := newSettling(t)
	f := foundOf(w, p, 1, "k")
	of := w.settler.Evidence.Of(f.Job)
	ack, err := w.Env.JS.PublishMsg(t.Context(), &nats.Msg{Subject: ledger.ResultSubject(of.API, of.Key), Header: nats.Header{
		ingest.HeaderMsgID: {"result." + f.Origin()}, ingest.HeaderJobID: {of.ID}, ledger.HeaderStatus: {"200"}, ledger.HeaderCalls: {"1"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	f.Calls, f.result, f.found = 2, ack.Sequence, recovery.Found{Recorded: 2, Ended: true, Result: true}
	w.settler.Unrecorded.Await(f.Job)
	if fate := recovery.Judge(f.found); fate != recovery.HasResult || !f.followLocked(fate) {
		t.Fatalf("fate %d", fate)
	}
	await.Return(t, "the job's end", func() { f.settle(t.Context(), recovery.HasResult) })
	if c, err := ledger.LookUp(t.Context(), w.Env.JS, of, time.Unix(0, 0)); err != nil || c.Record != nil || len(lettersOf(t, w.Env.JS, "k")) != 0 {
		t.Errorf("its record is %+v, %v", c.Record, err)
	}
	if unlogged, all := w.settler.Unrecorded.Left(); unlogged != 0 || !all {
		t.Errorf("%d calls are unlogged, all others recorded: %v", unlogged, all)
	}
}
