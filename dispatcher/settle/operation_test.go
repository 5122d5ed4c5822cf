package settle

import (
	"context"
	"net/http"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// operating returns a worker whose api accepts calls and goes on working on them, with a job whose call was made.
// polled gets the jobs that must be polled, and uses gets what is reported to the store of slots.
func operating(t *testing.T) (w *settling, j *lane.Job, polled *[]*lane.Job, uses *[]bucket.Use) {
	t.Helper()
	w, p := newOwned(t)
	var err error
	if w.Env.Calls, err = stream.NewWriter(w.Env.Conn, nil, 10, 1<<20); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.Env.Calls.Run(ctx) }()
	t.Cleanup(func() { cancel(); _ = await.Receive(t, "the end of the calls", ended) })
	p.Markers = writing(t, w.Env, w.Queue)
	api := *w.Terms.API
	api.Rule = &ingest.Rule{API: "pay", Methods: []string{"POST"}}
	api.Price, api.MaxResult = 250_000, 1<<10
	api.Rules.Shared = []bucket.Limit{{Name: "one", InFlight: 1}}
	api.Operation = &httpcall.Operation{Accepted: []int{202}, Path: "{answer-header:Location}", For: time.Hour, HoldSlot: true}
	w.Terms = w.Env.NewTerms(&api, nil)
	polled, uses = new([]*lane.Job), new([]bucket.Use)
	w.settler.Operations.Use(
		func(j *lane.Job) { *polled = append(*polled, j) }, func(_ context.Context, all []bucket.Use) { *uses = append(*uses, all...) },
		func(*lane.Job, httpcall.Response) Beyond { return Beyond{Price: 50_000, Units: []int64{0}} },
	)
	j = lane.JobLocked(w.Sched.Extract(w.Sched.Push("k", 1, &p.Partition), 1))
	j.Settle()
	j.Bind(w.Terms)
	j.Message, j.Accepted, j.Calls = &ingest.Job{API: "pay", Key: "k", ID: "j"}, bucket.MicrosOf(time.Now()), 1
	j.Bill.Paid, j.Costs, j.Granted = 250_000, []int64{1}, &bucket.Use{Key: "k", Grant: bucket.Grant{Serial: 64}}
	return w, j, polled, uses
}

// accepted is the answer of an api that accepts a call.
func accepted() httpcall.Response {
	now := time.Now()
	return httpcall.Response{Sent: true, Status: http.StatusAccepted, Header: http.Header{"Location": {"/operations/1"}}, Started: now, Ended: now}
}

// loadAgain lets the job's message be loaded again.
func loadAgain(w *settling, j *lane.Job) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	j.Part.Cache.KeepLocked(queue.Entry{
		Seq: 1, Key: "k", Header: map[string][]string{ingest.HeaderJobID: {"j"}}, Data: []byte("{}"), Time: j.Accepted.Time(),
	})
}

// recordsOf returns the records of the key.
func recordsOf(t *testing.T, w *settling) (records []ledger.Record) {
	t.Helper()
	if _, err := ledger.Read(t.Context(), w.Env.JS, ledger.Filter{API: "pay"}, func(c *ledger.Record, _, _ uint64) error {
		records = append(records, *c)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return records
}

// TestAcceptedCall checks what is stored of a call that the api has accepted, and of the end of its operation: one
// record each. The two together charge the price once.
func TestAcceptedCall(t *testing.T) {
	w, j, polled, uses := operating(t)
	await.Return(t, "the outcome", func() { w.settler.Settle(t.Context(), j, accepted()) })
	if len(*polled) != 1 || !j.IsPolled() || j.Message != nil || j.Marks.Last == 0 || len(j.Announced.Marks) != 0 {
		t.Fatalf("polled %v, %+v", *polled, j)
	}
	if op := j.Operation; op.Address != "http://127.0.0.1:1/operations/1" || !op.Holds || op.Price != 250_000 || time.Until(op.Until.Time()) > time.Hour || time.Until(op.Until.Time()) < 50*time.Minute {
		t.Errorf("%+v", op)
	}
	// The operation's own slot is held before the call's ends.
	if len(*uses) != 2 || (*uses)[0].Hold < time.Hour || (*uses)[0].Grant.Serial >= 0 || (*uses)[1].Grant.Serial != 64 || (*uses)[1].Hold != 0 {
		t.Errorf("the store was told %+v", *uses)
	}
	w.Mu.Lock()
	taken := w.Sched.EndPolled(j.Job)
	w.Mu.Unlock()
	loadAgain(w, j)
	now := time.Now()
	r := httpcall.Response{Sent: true, Status: 200, Header: http.Header{}, Body: []byte(`{"state":"done"}`), Started: now, Ended: now}
	await.Return(t, "the end", func() {
		w.settler.Operations.End(t.Context(), j, r, httpcall.Outcome{Verdict: httpcall.Delivered, Billed: deadletter.BilledYes})
	})
	records := recordsOf(t, w)
	if !taken || len(records) != 2 {
		t.Fatalf("taken %v, %+v", taken, records)
	}
	if c := records[0]; c.Outcome != ledger.Submitted || c.Final || c.Price != "0.25" || c.Operation == nil || c.Polled {
		t.Errorf("%+v", c)
	}
	if c := records[1]; c.Outcome != ledger.Done || !c.Final || c.Price != "0.05" || !c.Polled || c.Call != 1 || c.Costs[0] != 0 {
		t.Errorf("%+v", c)
	}
	if last := (*uses)[len(*uses)-1]; len(*uses) != 3 || last.Grant.Serial != (*uses)[0].Grant.Serial || last.Hold != 0 {
		t.Errorf("the store was told %+v", *uses)
	}
	found, err := ledger.LookUp(t.Context(), w.Env.JS, w.settler.Evidence.Of(&lane.Job{Job: j.Job, Part: j.Part, Message: &ingest.Job{ID: "j"}, Accepted: j.Accepted}), now.Add(-time.Minute))
	if err != nil || found.Result == 0 {
		t.Fatalf("%+v, %v", found, err)
	}
	result, _ := w.settler.Evidence.Result(t.Context(), ledger.Job{ID: "j"}, found.Result)
	if result == nil || result.Header.Get(ledger.HeaderPrice) != "0.30" {
		t.Errorf("the result does not name the price of call and operation: %+v", result)
	}
}

// TestEarlierOwnersResult checks that an operation that is given up ends with the result that an earlier owner has stored.
func TestEarlierOwnersResult(t *testing.T) {
	w, j, _, _ := operating(t)
	await.Return(t, "the outcome", func() { w.settler.Settle(t.Context(), j, accepted()) })
	stored, err := w.Env.JS.PublishMsg(t.Context(), &nats.Msg{Subject: ledger.ResultSubject("pay", "k"), Header: nats.Header{
		ingest.HeaderMsgID: {resultMsgID(j)}, ingest.HeaderJobID: {"j"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.Mu.Lock()
	w.Sched.EndPolled(j.Job)
	w.Mu.Unlock()
	loadAgain(w, j)
	await.Return(t, "the end", func() {
		w.settler.Operations.End(t.Context(), j, httpcall.Response{Ended: time.Now()}, httpcall.Outcome{
			Verdict: httpcall.Dead, Reason: deadletter.Unknown, Detail: "given up", Billed: deadletter.BilledYes,
		})
	})
	if records := recordsOf(t, w); len(records) != 2 || records[1].Outcome != ledger.Done || records[1].Result != stored.Sequence {
		t.Errorf("%+v", records)
	}
	if info, err := w.Env.JS.Stream(t.Context(), deadletter.Stream); err != nil || info.CachedInfo().State.Msgs != 0 {
		t.Errorf("a letter is stored beside the result, %v", err)
	}
}

// TestReplacedOwnerEndsNothing checks that an owner that was replaced cannot begin to store the end of an operation, even
// before it knows that it was.
func TestReplacedOwnerEndsNothing(t *testing.T) {
	w, j, _, _ := operating(t)
	await.Return(t, "the outcome", func() { w.settler.Settle(t.Context(), j, accepted()) })
	if _, err := w.Queue.Partitions()[0].Own(t.Context(), "another"); err != nil {
		t.Fatal(err)
	}
	refused := 0
	j.Part.Intents.Refused = func() {
		refused++
		j.Part.Lost.Store(true)
	}
	w.Mu.Lock()
	w.Sched.EndPolled(j.Job)
	w.Mu.Unlock()
	loadAgain(w, j)
	await.Return(t, "the end", func() {
		w.settler.Operations.End(t.Context(), j, httpcall.Response{Sent: true, Status: 200, Header: http.Header{}, Ended: time.Now()}, httpcall.Outcome{Verdict: httpcall.Delivered, Billed: deadletter.BilledYes})
	})
	if records := recordsOf(t, w); refused != 1 || len(records) != 1 {
		t.Errorf("refused %d times, and the records are %+v", refused, records)
	}
	if info, err := w.Env.JS.Stream(t.Context(), ledger.ResultsStream); err != nil || info.CachedInfo().State.Msgs != 0 {
		t.Errorf("a result is stored by an owner that was replaced, %v", err)
	}
}

// TestIntentOfAnEnd checks that the intent of an operation's end names the call and the call's key: if the operation's
// mark is lost, the job must not be called again under a key that the api has forgotten.
func TestIntentOfAnEnd(t *testing.T) {
	w, j, _, _ := operating(t)
	await.Return(t, "the outcome", func() { w.settler.Settle(t.Context(), j, accepted()) })
	j.Doubt = lane.Doubt{Billed: deadletter.BilledYes, Identity: "Idempotency-Key@1700000000"}
	await.Return(t, "the intent", func() {
		if !w.settler.Operations.intendEnd(t.Context(), j) || len(j.Announced.Marks) != 1 {
			t.Errorf("%d intents are stored", len(j.Announced.Marks))
		}
	})
	s, err := w.Env.JS.Stream(t.Context(), j.Part.Bucket.Name())
	if err != nil {
		t.Fatal(err)
	}
	msg, err := s.GetMsg(t.Context(), j.Announced.Marks[0].Seq)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := (queue.Entry{Data: msg.Data}).Intents(); err != nil || len(all) != 1 || all[0].Call != 1 || all[0].Idempotency != j.Doubt.Identity || all[0].Entry != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestEstimatesInRecords checks that a record has a job's estimates only if an answer says that the call took more. The
// record of an operation's end has them if the operation took more than its call was charged.
func TestEstimatesInRecords(t *testing.T) {
	w, j, _, _ := operating(t)
	j.Bill.Taken, j.Bill.Estimates = []int64{9}, []int64{4}
	r := httpcall.Response{Sent: true, Status: 200}
	for _, c := range []struct {
		what      string
		out       httpcall.Outcome
		unsettled []string
		has       bool
	}{
		{"answered", httpcall.Outcome{Verdict: httpcall.Delivered, Billed: deadletter.BilledYes}, nil, true},
		{"silent", httpcall.Outcome{Verdict: httpcall.Delivered, Billed: deadletter.BilledYes}, []string{"one"}, false},
		{"not billed", httpcall.Outcome{Verdict: httpcall.Pushback, Billed: deadletter.NotBilled}, nil, false},
		{"accepted", httpcall.Outcome{Verdict: httpcall.Submitted, Billed: deadletter.BilledYes}, nil, false},
	} {
		j.Bill.Unsettled = c.unsettled
		if got := Record(j, r, c.out).Estimated; (got != nil) != c.has {
			t.Errorf("the record of a call that was %s has the estimates %v", c.what, got)
		}
	}
	j.Bill.Unsettled, j.Operation = nil, &queue.Operation{Costs: []int64{9}}
	done := httpcall.Outcome{Verdict: httpcall.Delivered, Billed: deadletter.BilledYes}
	for more, has := range map[int64]bool{0: false, 3: true} {
		c := w.settler.Operations.EndRecord(j, r, done, Beyond{Units: []int64{more}, Estimates: []int64{4}})
		if (c.Estimated != nil) != has {
			t.Errorf("the record of an operation that took %d beyond its call has the estimates %v", more, c.Estimated)
		}
	}
}

// TestJobStaysUntilItsRecordIsStored checks that a job that is done is deleted only when its result and its record are
// stored.
func TestJobStaysUntilItsRecordIsStored(t *testing.T) {
	for _, missing := range []string{"", ledger.CallsStream, ledger.ResultsStream} {
		w, j, _, _ := operating(t)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		if missing != "" {
			if err := w.Env.JS.DeleteStream(ctx, missing); err != nil {
				t.Fatal(err)
			}
			stop() // each write is tried once
		}
		now := time.Now()
		r := httpcall.Response{Sent: true, Status: 200, Header: http.Header{}, Body: []byte("{}"), Started: now, Ended: now}
		await.Return(t, "the outcome", func() { w.settler.Settle(ctx, j, r) })
		if left := w.Sched.At(w.Now()).Unfinished(); (left == 0) != (missing == "") {
			t.Errorf("without %q %d jobs are left", missing, left)
		}
	}
}
