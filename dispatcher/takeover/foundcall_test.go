package takeover

import (
	"cmp"
	"slices"
	"strings"
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
	"weir/dispatcher/schedule"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// foundOf returns a found job with a key of its own.
func foundOf(w *rig, p *Takeover, seq uint64, key string) *foundJob {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	f := &foundJob{w: w.settler, Job: lane.JobLocked(w.Sched.Extract(w.Sched.Push(key, seq, &p.Partition), seq))}
	f.Bind(w.Terms)
	f.Settle()
	f.Message, f.Accepted, f.Calls = &ingest.Job{API: "pay", Key: key, ID: key}, bucket.MicrosOf(time.Now()), 1
	return f
}

// TestFoundCallIsAwaited checks that a call without a record counts as unrecorded as soon as its job is read.
func TestFoundCallIsAwaited(t *testing.T) {
	w, p := newSettling(t)
	w.Mu.Lock()
	q := w.Sched.Push("k", 1, &p.Partition)
	p.reader.resumeLocked(noMore(t), q, queue.Entry{Seq: 1, Time: time.Now()}, jobHistory{intent: &lane.FoundIntent{Intent: queue.Intent{Seq: 1, Call: 1}, Mark: &lane.IntentMark{Users: 1}, Stored: time.Now()}})
	w.Mu.Unlock()
	await.Return(t, "what the worker runs", w.Running.Wait) // it has stopped before it could store anything
	if unlogged, all := w.settler.Unrecorded.Left(); unlogged != 0 || all {
		t.Errorf("of a lost call nothing is awaited: %d unlogged", unlogged)
	}
}

// TestLookedUpRecordBindsTheNextCall checks that, if a looked-up record says that the job is called again, the next
// call follows that record: its key's identity, and whether the call may have been charged.
func TestLookedUpRecordBindsTheNextCall(t *testing.T) {
	w, p := newSettling(t)
	f := foundOf(w, p, 1, "k")
	f.Lose(&lane.FoundIntent{Intent: queue.Intent{Call: 1, Deaths: 2}, Stored: time.Now()})
	f.record = &ledger.Record{Call: 1, Attempt: 1, Detail: "it failed", Billed: deadletter.BilledUnknown, Idempotency: "Other-Key@0"}
	f.wait(t.Context())
	w.Mu.Lock()
	defer w.Mu.Unlock()
	if f.Doubt.Identity != "Other-Key@0" || f.Doubt.Charged() != deadletter.BilledUnknown || f.Attempts != 1 || f.Deaths != 0 || f.Lost != nil || !f.Rests() {
		t.Errorf("%+v: attempts %d, deaths %d, rests %v", f.Doubt, f.Attempts, f.Deaths, f.Rests())
	}
}

// TestRecordOfALoneResult checks that the record of a call that left only a result follows the call's intent, not the
// api's present terms. Its units and its key's pace are those that the process noted of this very call. Without a note,
// the call is charged its estimate, and the key waits as if the call had been made now.
func TestRecordOfALoneResult(t *testing.T) {
	w, p := newSettling(t)
	api := *w.Terms.API
	api.Price = 900_000
	api.Rules.Shared = []bucket.Limit{{Name: "tokens", Cost: ingest.Units(3)}, {Name: "money", Budget: &bucket.Budget{}}}
	w.Terms = &lane.Terms{API: &api, Call: w.Terms.Call, Policy: w.Terms.Policy, Limits: 7}
	answer := func(limits uint64) *recorder.Answer {
		return &recorder.Answer{Status: 200, Limits: limits, Taken: []int64{5, 100_000}, Paid: 100_000}
	}
	const noted = bucket.Micros(42)
	for i, c := range []struct {
		what  string
		calls string // that the result tells, and perhaps its price
		lost  int    // the call that the intent is of, 0 for none
		noted recorder.Found
		costs []int64
		price string
		tat   bucket.Micros // 0: a drain from now on
	}{
		{"no intent", "1", 0, recorder.Found{}, []int64{3, 900_000}, "0.90", 0},
		{"an intent", "1", 1, recorder.Found{}, []int64{3, 250_000}, "0.25", 0},
		{"a result that tells its price", "1 0.30", 1, recorder.Found{}, []int64{3, 300_000}, "0.30", 0},
		{"a noted answer", "1", 1, recorder.Found{State: recorder.Answered, TAT: int64(noted), Answer: answer(7)}, []int64{5, 100_000}, "0.10", noted},
		{"a noted answer under other limits", "1", 1, recorder.Found{State: recorder.Answered, TAT: int64(noted), Answer: answer(8)}, []int64{3, 100_000}, "0.10", noted},
		{"a call that is noted as sent", "1", 1, recorder.Found{State: recorder.Left, TAT: int64(noted)}, []int64{3, 250_000}, "0.25", noted},
		{"the result of a call before", "0", 1, recorder.Found{State: recorder.Answered, TAT: int64(noted), Answer: answer(7)}, []int64{3, 250_000}, "0.25", 0},
		{"a late result of a call that has a record", "1", 2, recorder.Found{}, []int64{3, 250_000}, "0.25", 0},
	} {
		key := string(rune('a' + i))
		f := foundOf(w, p, uint64(i+1), key)
		of := w.settler.Evidence.Of(f.Job)
		calls, price, _ := strings.Cut(c.calls, " ")
		ack, err := w.Env.JS.PublishMsg(t.Context(), &nats.Msg{Subject: ledger.ResultSubject(of.API, of.Key), Header: nats.Header{
			ingest.HeaderMsgID: {"result." + f.Origin()}, ingest.HeaderJobID: {of.ID}, ledger.HeaderStatus: {"200"},
			ledger.HeaderCalls: {calls}, ledger.HeaderPrice: {price},
		}})
		if err != nil {
			t.Fatal(err)
		}
		f.result, f.noted, f.found.Result = ack.Sequence, c.noted, true
		if c.lost > 0 {
			intent := queue.Intent{Call: c.lost, Timeout: time.Minute, Price: 250_000, Idempotency: "Other-Key@0"}
			f.intent, f.found.Intended = &lane.FoundIntent{Intent: intent, Mark: &lane.IntentMark{Users: 1}, Stored: time.Now()}, c.lost
		}
		before := w.Now()
		w.Mu.Lock()
		f.followLocked(recovery.HasResult)
		unsure, floor, drain := f.Queue.Unsure, f.Queue.Noted, w.Sched.Policy().DrainTime(f.Queue.Limits)
		w.Mu.Unlock()
		if isNoted := c.noted.State != recorder.Untold; unsure == isNoted || isNoted != (floor == noted) {
			t.Errorf("%s: the key is unsure: %v, and goes on at %d", c.what, unsure, floor)
		}
		await.Return(t, "the job's end", func() { f.endWithResult(t.Context()) })
		found, err := ledger.LookUp(t.Context(), w.Env.JS, of, time.Unix(0, 0))
		if err != nil || found.Record == nil {
			t.Fatalf("%s: %+v, %v", c.what, found, err)
		}
		r := found.Record
		if !slices.Equal(r.Costs, c.costs) || r.Price != c.price || (r.Idempotency == "Other-Key@0") != (c.lost > 0) || r.Status != 200 || !r.Final || !r.Planned.IsZero() || r.Call != max(1, c.lost) {
			t.Errorf("%s: %+v", c.what, r)
		}
		if want := cmp.Or(c.tat, before.Add(drain)); r.TAT < want || c.tat != 0 && r.TAT != c.tat {
			t.Errorf("%s: the key is called again from %d, want %d", c.what, r.TAT, want)
		}
	}
}

// TestRecordOfALoneResultOfAPack checks that the record of a pack's call that left only results names the pack, so that
// the call counts once, with the job at place 0.
func TestRecordOfALoneResultOfAPack(t *testing.T) {
	w, p := newSettling(t)
	api := *w.Terms.API
	api.Rules.Shared, api.Pack = []bucket.Limit{{Name: "tokens", Cost: ingest.Units(3)}}, &httpcall.Pack{Jobs: 2}
	w.Terms = &lane.Terms{API: &api, Call: w.Terms.Call, Policy: w.Terms.Policy}
	for place, costs := range [][]int64{{3}, {0}} {
		f := foundOf(w, p, uint64(place+1), string(rune('a'+place)))
		of := w.settler.Evidence.Of(f.Job)
		ack, err := w.Env.JS.PublishMsg(t.Context(), &nats.Msg{Subject: ledger.ResultSubject(of.API, of.Key), Header: nats.Header{
			ingest.HeaderMsgID: {"result." + f.Origin()}, ingest.HeaderJobID: {of.ID}, ledger.HeaderStatus: {"200"}, ledger.HeaderCalls: {"1"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		f.result, f.found.Result, f.found.Intended = ack.Sequence, true, 1
		f.intent = &lane.FoundIntent{
			Intent: queue.Intent{Call: 1, Pack: &queue.Pack{ID: "p", Place: place, Of: 2}}, Mark: &lane.IntentMark{Users: 1}, Stored: time.Now(),
		}
		w.Mu.Lock()
		f.followLocked(recovery.HasResult)
		w.Mu.Unlock()
		await.Return(t, "the job's end", func() { f.endWithResult(t.Context()) })
		found, err := ledger.LookUp(t.Context(), w.Env.JS, of, time.Unix(0, 0))
		if err != nil || found.Record == nil {
			t.Fatalf("%+v, %v", found, err)
		}
		if r := found.Record; r.Pack == nil || r.Pack.Place != place || !slices.Equal(r.Costs, costs) {
			t.Errorf("the job at place %d took %d, in pack %+v", place, r.Costs, r.Pack)
		}
	}
}

// TestGoneResultBesideAnEndMark checks that a job whose result was read and is gone counts as called, even if a mark of
// an end was stored after the call's intent. It becomes a letter unknown, even if the record of an earlier call is
// looked up: no letter takes its reason from that record's outcome.
func TestGoneResultBesideAnEndMark(t *testing.T) {
	w, p := newSettling(t)
	f := foundOf(w, p, 1, "k")
	c := ledger.Record{
		API: "pay", Key: "k", Job: "k", Stream: p.Bucket.Name(), Seq: 1, Call: 1, Attempt: 1, Accepted: f.Accepted.Time(), Outcome: "retry", Detail: "it failed",
		Billed: deadletter.NotBilled,
	}
	if _, err := w.Env.JS.PublishMsg(t.Context(), c.Message()); err != nil {
		t.Fatal(err)
	}
	f.intent = &lane.FoundIntent{Intent: queue.Intent{Seq: 1, Call: 2}, Stored: time.Now()}
	f.mark = &foundMark{RetryMark: queue.RetryMark{Seq: 1, Ends: "expired", Reason: "it was late"}, seq: 9}
	f.found = recovery.Found{Intended: 2, Ending: true, Result: true}
	f.result = 1 << 40
	if fate := recovery.Judge(f.found); fate != recovery.HasResult || !f.followLocked(fate) {
		t.Fatalf("fate %d", fate)
	}
	await.Return(t, "the job's end", func() { f.settle(t.Context(), recovery.HasResult) })
	s, err := w.Env.JS.Stream(t.Context(), deadletter.Stream)
	if err != nil {
		t.Fatal(err)
	}
	msg, err := s.GetMsg(t.Context(), s.CachedInfo().State.LastSeq)
	if err != nil {
		t.Fatal(err)
	}
	if want := (&deadletter.Letter{API: "pay", Key: "k", Reason: deadletter.Unknown}).Subject(); msg.Subject != want {
		t.Errorf("the letter is %s, want %s: %v", msg.Subject, want, msg.Header)
	}
}

// TestGoneResultWithoutAnIntent checks that a job whose result was read and is gone counts as called, even without an
// intent or record of that call. It is not called again at an api that would take that for a new call.
func TestGoneResultWithoutAnIntent(t *testing.T) {
	w, p := newSettling(t)
	f := foundOf(w, p, 1, "k")
	f.found, f.result = recovery.Found{Result: true}, 1<<40
	if fate := recovery.Judge(f.found); fate != recovery.HasResult || !f.followLocked(fate) {
		t.Fatalf("fate %d", fate)
	}
	await.Return(t, "its way back to its queue", func() { f.settle(t.Context(), recovery.HasResult) })
	w.Mu.Lock()
	defer w.Mu.Unlock()
	keyed := &httpcall.API{Idempotency: &httpcall.Idempotency{Header: "Idempotency-Key"}}
	if none := (&httpcall.API{}); !f.Rests() || f.Doubt.Charged() != deadletter.BilledYes || f.Doubt.Allows(none, "", time.Now()) || !f.Doubt.Allows(keyed, "", time.Now()) {
		t.Errorf("rests %v: %+v", f.Rests(), f.Doubt)
	}
}

// TestNotedAnswerEndsItsOwnCall checks that a noted answer belongs to the call that the newest intent names. Everything
// stored for it carries that number, as does anything that the calling process may have stored.
func TestNotedAnswerEndsItsOwnCall(t *testing.T) {
	w, p := newSettling(t)
	f := foundOf(w, p, 1, "k")
	f.intent = &lane.FoundIntent{Intent: queue.Intent{Call: 3}, Stored: time.Now()}
	f.noted = recorder.Found{State: recorder.Answered, Answer: &recorder.Answer{Status: 200}}
	w.Mu.Lock()
	f.followLocked(recovery.Answered)
	w.Mu.Unlock()
	if f.Calls != 3 || f.Flown == nil || f.Lost == nil || f.Unseen {
		t.Errorf("call %d, noted %v, lost %v, unseen %v", f.Calls, f.Flown != nil, f.Lost != nil, f.Unseen)
	}
	w.settler.Unrecorded.AccountedFor(f.Job)
	w.Update(func(s *schedule.Schedule) { s.Finished(f.Job.Job) })
}
