package dispatcher

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/lease"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/ownership"
	"weir/dispatcher/schedule"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// newLedgerLane returns a worker of an api that is not idempotent, on a dispatcher that shares partitions with other
// replicas. None of it runs.
func newLedgerLane(t *testing.T, bounds ledger.Bounds, rate bucket.Rate) *apiWorker {
	t.Helper()
	d := newShared(t)
	d.opts.Tail, d.env.Leeway, d.opts.Dedupe, d.opts.Log, d.env.Log = bounds, bounds.OrDefault().Leeway, queue.NewDedupe(time.Hour), slog.New(slog.DiscardHandler), slog.New(slog.DiscardHandler)
	d.env.Metrics = lane.NewMetrics(nil)
	rules := bucket.Rules{Key: bucket.KeyLimits{Rate: rate, Capacity: 1000, InFlight: 4}}
	queue, err := queue.OpenQueue(t.Context(), queue.Options{Conn: d.opts.Conn, JetStream: d.opts.JetStream, Rules: rules, Settings: queue.Settings{
		StreamSettings: queue.StreamSettings{Replicas: 1, Dedupe: time.Hour}, API: "pay", Partitions: 2, Capacity: 1000, MaxBody: 1 << 10,
	}})
	if err != nil {
		t.Fatal(err)
	}
	store, err := bucket.NewMemory(rules, d.opts.Now)
	if err != nil {
		t.Fatal(err)
	}
	return d.add(APIOptions{
		API: &httpcall.API{Name: "pay", URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Timeout: time.Second, Rules: rules, Rule: &ingest.Rule{
			API: "pay", Methods: []string{"POST"},
		}},
		Queue: queue, Store: store, Checkpoint: func() {}, TAT: func(key string) bucket.Micros { tat, _ := store.TAT(key); return tat },
	})
}

// keepRecordOf stores a record of a job that another replica has ended.
func (w *apiWorker) keepRecordOf(t *testing.T, api, key, id string, seq uint64, debt time.Duration) {
	t.Helper()
	now := time.Now()
	c := ledger.Record{
		API: api, Key: key, Job: id, Dedupe: id, Stream: w.Queue.Partition(key).Name(), Seq: seq, Call: 1, Accepted: now, Planned: now, Started: now,
		Outcome: ledger.Done, Final: true, TAT: bucket.MicrosOf(now.Add(debt)), Instance: "weir-1",
	}
	data, _ := json.Marshal(&c)
	if _, err := w.Env.JS.Publish(t.Context(), c.Subject(), data); err != nil {
		t.Fatal(err)
	}
}

// readLedger reads the ledger's end as it is read when this replica takes these partitions.
func (w *apiWorker) readLedger(t *testing.T, numbers ...int) {
	t.Helper()
	parts := map[lease.PartitionID]struct{}{}
	for _, n := range numbers {
		parts[lease.PartitionID{API: "pay", Number: n}] = struct{}{}
	}
	if err := w.d.tailLoads.readFor(t.Context(), parts); err != nil {
		t.Fatal(err)
	}
}

// TestReadingOutlivesOneTakeover checks that a takeover still has the ledger read if another one reads for both of them
// and its partition is lost meanwhile.
func TestReadingOutlivesOneTakeover(t *testing.T) {
	w := newLedgerLane(t, ledger.Bounds{}, everyFiveMinutes)
	w.keepRecordOf(t, "pay", "k", "job", 1, 5*time.Minute)
	d := &w.d.tailLoads
	d.reading = true // for a takeover of the other partition
	number, done := queue.PartitionOf("k", 2), make(chan error, 1)
	go func() { done <- d.loadTail(t.Context(), w, number) }()
	await.Until(t, "the takeover waits", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.next != nil
	})
	lost, lose := context.WithCancel(t.Context())
	lose()
	d.loadForWaiting(lost)
	if err := await.Receive(t, "the ledger's end", done); err != nil || !w.hasEnded("k", "job") {
		t.Errorf("%v; the ended job is known: %v", err, w.hasEnded("k", "job"))
	}
}

// wait returns how long a key must wait as far as the ledger says.
func (w *apiWorker) wait(t *testing.T, key string) time.Duration {
	t.Helper()
	slot, err := w.pace.Recall(t.Context(), &schedule.KeyQueue{Key: key, Limits: w.Sched.Policy().LimitsOf(key)})
	if err != nil {
		t.Fatal(err)
	}
	return max(0, w.Now().Until(max(slot, w.Env.Tail.TAT("pay", key))))
}

func (w *apiWorker) hasEnded(key, id string) bool {
	return w.Queue.Partition(key).Duplicate(queue.Entry{
		Kind: queue.JobEntry, Seq: 1 << 40, Key: key, Time: time.Now(), Header: nats.Header{ingest.HeaderMsgID: {ingest.StoredID(key, id)}},
	}) == queue.Same
}

var everyFiveMinutes = bucket.Rate{Count: 1, Per: 5 * time.Minute, Burst: 1}

// TestCutTailForgetsNoKey checks that a key waits even if more records than are kept follow its last one, and that the
// ids before the cut are known.
func TestCutTailForgetsNoKey(t *testing.T) {
	w := newLedgerLane(t, ledger.Bounds{Records: 40}, everyFiveMinutes)
	w.keepRecordOf(t, "pay", "slow", "first", 1, 5*time.Minute)
	for i := range 50 {
		w.keepRecordOf(t, "pay", fmt.Sprint("busy-", i), fmt.Sprint("b", i), uint64(10+i), time.Second)
	}
	w.readLedger(t, 0, 1)
	if w.Env.Tail.TAT("pay", "slow") != 0 {
		t.Fatal("all records were kept: nothing is tested")
	}
	if d := w.wait(t, "slow"); d < 4*time.Minute {
		t.Errorf("the key is called again in %v", d)
	}
	if !w.hasEnded("slow", "first") || !w.hasEnded("busy-49", "b49") || w.hasEnded("slow", "second") {
		t.Error("ids are not known as they should be")
	}
}

// TestOtherAPIsTakeNoRoom checks that records of other apis do not count against the bound, and their ids are not
// known.
func TestOtherAPIsTakeNoRoom(t *testing.T) {
	w := newLedgerLane(t, ledger.Bounds{Records: 40}, everyFiveMinutes)
	w.keepRecordOf(t, "pay", "slow", "first", 1, 5*time.Minute)
	for i := range 50 {
		w.keepRecordOf(t, "busy", "k", fmt.Sprint("b", i), uint64(10+i), time.Second)
	}
	w.readLedger(t, 0, 1)
	if w.Env.Tail.TAT("pay", "slow") == 0 || !w.Env.Tail.Covers("pay", 0) {
		t.Error("not all was kept")
	}
	if !w.hasEnded("slow", "first") || w.hasEnded("k", "b1") {
		t.Error("ids are not known as they should be")
	}
}

// TestIdsReachFurtherThanRecords checks that ids are known as far back as dedupe says, for every partition, and are
// read once.
func TestIdsReachFurtherThanRecords(t *testing.T) {
	w := newLedgerLane(t, ledger.Bounds{Age: time.Nanosecond}, everyFiveMinutes)
	for i := range 20 {
		w.keepRecordOf(t, "pay", fmt.Sprint("k", i), "first", uint64(i+1), 5*time.Minute)
	}
	ended := func(id string) (n int) {
		for i := range 20 {
			if w.hasEnded(fmt.Sprint("k", i), id) {
				n++
			}
		}
		return n
	}
	w.readLedger(t, 0)
	if n := ended("first"); n != 20 {
		t.Errorf("%d of 20 ids are known", n)
	}
	if d := w.wait(t, "k0"); d < 4*time.Minute {
		t.Errorf("a key whose record is older than what is kept is called again in %v", d)
	}
	for i := range 20 {
		w.keepRecordOf(t, "pay", fmt.Sprint("k", i), "second", uint64(i+21), 5*time.Minute)
	}
	w.readLedger(t, 1)
	if n := ended("second"); n != 20 {
		t.Errorf("%d of 20 new ids are known", n)
	}
}

// TestKeyThatTheLedgerHasLost checks that if the ledger has dropped its oldest records, a key without a record may have
// been called just before. If it never has, such a key was never called.
func TestKeyThatTheLedgerHasLost(t *testing.T) {
	w := newLedgerLane(t, ledger.Bounds{}, bucket.Rate{Count: 1, Per: 24 * time.Hour, Burst: 1})
	w.keepRecordOf(t, "pay", "slow", "first", 1, 24*time.Hour)
	w.keepRecordOf(t, "pay", "other", "first", 1, time.Second)
	if d := w.wait(t, "new"); d > 0 {
		t.Errorf("a key that was never called waits %v", d)
	}
	stream, err := w.Env.JS.Stream(t.Context(), ledger.CallsStream)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(2)); err != nil {
		t.Fatal(err)
	}
	w.readLedger(t, 0, 1)
	if d := w.wait(t, "slow"); d < 23*time.Hour {
		t.Errorf("the key is called again in %v", d)
	}
	if whole, err := ledger.Reaches(t.Context(), w.Env.JS, time.Now().Add(-time.Hour)); err != nil || whole {
		t.Errorf("the ledger is said to reach back an hour: %v, %v", whole, err)
	}
	if err := stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := w.wait(t, "other"); d < 23*time.Hour {
		t.Errorf("after the ledger was emptied the key is called again in %v", d)
	}
}

// TestOutcomeBeforeTheTail checks a partition that was out of service while other partitions were called. A result of
// its last call ends its job, even if the result is older than the part of the results that is read.
func TestOutcomeBeforeTheTail(t *testing.T) {
	w := newLedgerLane(t, ledger.Bounds{Age: time.Nanosecond, Leeway: time.Nanosecond}, bucket.Rate{Count: 100, Per: time.Second, Burst: 1})
	js, ctx := w.Env.JS, t.Context()
	var err error
	if w.Env.Results, err = stream.NewWriter(w.Env.Conn, nil, 100, 1<<20); err != nil {
		t.Fatal(err)
	}
	if w.Env.Calls, err = stream.NewWriter(w.Env.Conn, nil, 100, 1<<20); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	for _, run := range []func(context.Context) error{w.Env.Results.Run, w.Env.Calls.Run, w.Queue.Run} {
		go func() { _ = run(running) }()
	}
	p := w.Queue.Partition("k")
	ack, err := js.PublishMsg(ctx, &nats.Msg{Subject: fmt.Sprintf("weir.q.pay.%d.j.k", p.Number()), Header: nats.Header{
		ingest.HeaderMsgID: {"k/x"}, ingest.HeaderJobID: {"x"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	entry, err := p.Get(ctx, ack.Sequence)
	if err != nil {
		t.Fatal(err)
	}
	markers, err := p.Own(ctx, "weir-1")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = markers.Run(running) }()
	if _, err := markers.Intend(queue.Intent{Seq: ack.Sequence, Call: 1, Accepted: bucket.MicrosOf(entry.Time)}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.PublishMsg(ctx, &nats.Msg{Subject: ledger.ResultSubject("pay", "k"), Header: nats.Header{
		ingest.HeaderMsgID: {"result." + ledger.OriginOf(p.Name(), ack.Sequence, bucket.MicrosOf(entry.Time))}, ingest.HeaderJobID: {"x"},
		ledger.HeaderOutcome: {ledger.Done}, ledger.HeaderCalls: {"1"}, ledger.HeaderAttempts: {"1"}, ledger.HeaderStatus: {"200"},
	}}); err != nil {
		t.Fatal(err)
	}
	w.keepRecordOf(t, "busy", "k", "y", 7, time.Second)
	if err := w.openPartition(ctx, running, p.Number(), ownership.Tenure{Clean: true}); err != nil {
		t.Fatal(err)
	}
	if w.OwnedPartition(p.Number()).Clean {
		t.Error("a partition that was not given up is taken for clean")
	}
	looping, halt := context.WithCancel(running)
	go w.loop(looping, running)
	defer halt()
	await.Until(t, "the job's record", func() bool {
		c := ledger.Record{API: "pay", Key: "k"}
		m, err := stream.AskLeader(ctx, w.Env.Conn, ledger.CallsStream, fmt.Sprintf(`{"last_by_subj":%q}`, c.Subject()))
		if err != nil || m == nil {
			return false
		}
		if err := json.Unmarshal(m.Data, &c); err != nil || c.Outcome != ledger.Done {
			t.Fatalf("the job ended as %q, %v", c.Outcome, err)
		}
		return true
	})
}
