package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/cmd/weir/internal/embedded"
	"weir/cmd/weir/internal/worker"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// left is what a worker that died left of one job, and what must come of it.
type left struct {
	what    string
	jobs    int    // 1 by default
	intents []int  // the calls that were to start, one message each
	deaths  int    // that the intents tell of
	keyed   string // what the intents say of the calls' idempotency keys
	epoch   uint64 // of the intents' owner
	mark    *queue.RetryMark
	behind  bool // the intents stand behind the mark
	record  *ledger.Record
	other   bool // the record is of another job, of a stream that is gone
	before  bool // all of it is of a job that had the sequence before the server lost its last writes
	taken   bool // so are a result, a record and a letter, and the streams know their ids
	result  bool
	late    bool          // its deadline has passed
	wait    time.Duration // NotBefore of the mark or the record, from when it is written
	orders  []string      // of the api after the restart
	safe    outcomeOf
	once    outcomeOf
}

// outcomeOf is how the job ends, and after how many calls at the api.
type outcomeOf struct {
	end
	calls   int
	results int
}

// pastEnd is an end that was stored before the restart.
func pastEnd(results int) outcomeOf { return outcomeOf{results: results} }

func called(attempts int, ledger ...string) outcomeOf {
	return outcomeOf{end: end{as: "done", status: 200, attempts: attempts, ledger: ledger}, calls: 1, results: 1}
}

func parked(attempts int, ledger ...string) outcomeOf {
	return outcomeOf{end: end{as: "unknown", attempts: attempts, billed: "unknown", ledger: ledger}}
}

// done is the last record of a call that was under way beside its result.
func done(key string) *ledger.Record {
	return &ledger.Record{
		Call: 1, Attempt: 1, Outcome: "done", Final: true, Beside: true, Sent: true, Status: 200, Billed: "yes", Price: "0.25", Idempotency: key,
	}
}

// unkept is a letter of a job that was called, and of which only the record was stored.
func unkept() outcomeOf {
	return outcomeOf{end: end{as: "unknown", status: 200, attempts: 1, billed: "yes", ledger: []string{"done", "unknown"}}}
}

// uncalled is a letter of a job that was never called.
func uncalled(reason string) outcomeOf { return outcomeOf{end: end{as: reason, billed: "no"}} }

// poisoned is a job that too many workers died over.
func poisoned() outcomeOf {
	return outcomeOf{end: end{as: "exhausted", attempts: 1, billed: "unknown", ledger: []string{"exhausted"}}}
}

// safeKey stands for how the calls of the api safe carry their idempotency keys.
const safeKey = "as safe does"

var leftovers = []left{
	{what: "nothing", safe: called(1, "done"), once: called(1, "done")},
	{what: "an intent", intents: []int{1}, safe: called(2, "retry", "done"), once: parked(1, "unknown")},
	{what: "an intent under another key", intents: []int{1}, keyed: "Other-Key@0", safe: parked(1, "unknown"), once: parked(1, "unknown")},
	{
		what: "a mark of a call under another key", mark: &queue.RetryMark{Calls: 1, Attempts: 1, Billed: "unknown", Idempotency: "Other-Key@0"},
		safe: parked(1), once: parked(1),
	},
	{
		what: "the record of a retry under another key", intents: []int{1},
		record: &ledger.Record{Call: 1, Attempt: 1, Outcome: "retry", Billed: "unknown", Idempotency: "Other-Key@0"},
		safe:   parked(1, "retry"), once: parked(1, "retry"),
	},
	{
		what: "a mark of a pushback under another key", mark: &queue.RetryMark{Calls: 1, Billed: "no", Pushback: true, Idempotency: "Other-Key@0"},
		safe: called(1, "done"), once: called(1, "done"),
	},
	{what: "an intent after four deaths", intents: []int{1}, deaths: 4, safe: poisoned(), once: parked(1, "unknown")},
	{what: "intents of two calls", intents: []int{1, 2}, safe: called(2, "retry", "done"), once: parked(1, "unknown")},
	{what: "a mark", mark: &queue.RetryMark{Calls: 1, Attempts: 1}, safe: called(2, "done"), once: called(2, "done")},
	{
		what: "a mark of later", mark: &queue.RetryMark{Calls: 3, Attempts: 1, Pushback: true}, wait: 1500 * time.Millisecond,
		safe: called(2, "done"), once: called(2, "done"),
	},
	{
		what: "a mark of the last attempt", mark: &queue.RetryMark{Calls: 2, Attempts: 2}, orders: []string{"status=500", "status=500"},
		safe: outcomeOf{end: end{as: "exhausted", status: 500, attempts: 3, billed: "unknown", ledger: []string{"exhausted"}}, calls: 1},
		once: outcomeOf{end: end{as: "unknown", status: 500, attempts: 3, billed: "unknown", ledger: []string{"unknown"}}, calls: 1},
	},
	{what: "a mark and its intent", intents: []int{1}, mark: &queue.RetryMark{Calls: 1}, safe: called(1, "done"), once: called(1, "done")},
	{what: "a mark and the next intent", intents: []int{1, 2}, mark: &queue.RetryMark{Calls: 1}, safe: called(2, "retry", "done"), once: parked(1, "unknown")},
	{
		what: "the record of a retry", intents: []int{1}, record: &ledger.Record{Call: 1, Attempt: 1, Outcome: "retry"},
		safe: called(2, "retry", "done"), once: called(2, "retry", "done"),
	},
	{
		what: "the record of a pushback", intents: []int{1}, record: &ledger.Record{Call: 1, Outcome: "pushback"}, wait: 1500 * time.Millisecond,
		safe: called(1, "pushback", "done"), once: called(1, "pushback", "done"),
	},
	{
		what: "the last record", intents: []int{1}, record: &ledger.Record{Call: 1, Attempt: 1, Outcome: "done", Final: true}, result: true,
		safe: pastEnd(1), once: pastEnd(1),
	},
	{what: "a record beside its result", intents: []int{1}, record: done(safeKey), result: true, safe: pastEnd(1), once: pastEnd(1)},
	{what: "a record beside its result, and no intent", record: done(safeKey), result: true, safe: pastEnd(1), once: pastEnd(1)},
	{what: "a record without its result", intents: []int{1}, record: done(safeKey), safe: called(2, "done", "retry", "done"), once: unkept()},
	{what: "a record without its result, and no intent", record: done(safeKey), safe: called(2, "done", "retry", "done"), once: unkept()},
	{what: "a record of a call without a key, without its result", intents: []int{1}, record: done(""), safe: unkept(), once: unkept()},
	{what: "a record of a call under another key, without its result", intents: []int{1}, record: done("Other-Key@0"), safe: unkept(), once: unkept()},
	{what: "a record without its result after four deaths", intents: []int{1}, deaths: 4, record: done(safeKey), safe: unkept(), once: unkept()},
	{
		what: "a record without its result, its deadline is past", intents: []int{1}, late: true, record: done(safeKey), once: unkept(),
		safe: outcomeOf{end: end{as: "expired", status: 200, attempts: 1, billed: "yes", ledger: []string{"done", "retry"}}},
	},
	{
		what: "the record that a result was not kept", intents: []int{1},
		record: &ledger.Record{Call: 1, Attempt: 1, Outcome: "retry", Unkept: true, Status: 200, Billed: "yes", Idempotency: safeKey},
		safe:   called(2, "retry", "done"),
		once:   outcomeOf{end: end{as: "unknown", status: 200, attempts: 1, billed: "yes", ledger: []string{"retry"}}},
	},
	{
		what: "the last record, that a result was not kept", intents: []int{1},
		record: &ledger.Record{Call: 1, Attempt: 1, Outcome: "unknown", Final: true, Unkept: true, Status: 200, Billed: "yes", Idempotency: safeKey},
		safe:   outcomeOf{end: end{as: "unknown", status: 200, attempts: 1, billed: "yes", ledger: []string{"unknown"}}},
		once:   outcomeOf{end: end{as: "unknown", status: 200, attempts: 1, billed: "yes", ledger: []string{"unknown"}}},
	},
	{
		what: "the last record of another job", record: &ledger.Record{Call: 1, Attempt: 1, Outcome: "done", Final: true}, other: true,
		safe: called(1, "done"), once: called(1, "done"),
	},
	{what: "the last record and no mark", record: &ledger.Record{Call: 1, Attempt: 1, Outcome: "rejected", Final: true}, safe: pastEnd(0), once: pastEnd(0)},
	{what: "a result", intents: []int{1}, result: true, safe: outcomeOf{results: 1}, once: outcomeOf{results: 1}},
	{what: "a result, and its deadline is past", intents: []int{1}, result: true, late: true, safe: outcomeOf{results: 1}, once: outcomeOf{results: 1}},
	{what: "a result and nothing else", result: true, safe: outcomeOf{results: 1}, once: outcomeOf{results: 1}},
	{
		what: "the mark of an end", mark: &queue.RetryMark{Ends: "cancelled", Reason: "cancelled by an operator"},
		safe: uncalled("cancelled"), once: uncalled("cancelled"),
	},
	{
		what: "an intent and the mark of an end", intents: []int{1}, mark: &queue.RetryMark{Ends: "over_budget", Reason: "the budget is spent"},
		safe: uncalled("over_budget"), once: uncalled("over_budget"),
	},
	{
		what: "the mark of an end and an intent", intents: []int{1}, behind: true, mark: &queue.RetryMark{Ends: "over_budget", Reason: "the budget is spent"},
		safe: called(2, "retry", "done"), once: parked(1, "unknown"),
	},
	{
		what: "an intent and the mark of an end by an earlier owner", intents: []int{1}, epoch: 8,
		mark: &queue.RetryMark{Ends: "expired", Reason: "it was late", Epoch: 7}, safe: called(2, "retry", "done"), once: parked(1, "unknown"),
	},
	{
		what: "an intent and the mark of an end by its owner", intents: []int{1}, epoch: 8,
		mark: &queue.RetryMark{Ends: "expired", Reason: "it was late", Epoch: 8}, safe: uncalled("expired"), once: uncalled("expired"),
	},
	{what: "the intent of the job before", before: true, intents: []int{1}, safe: called(1, "done"), once: called(1, "done")},
	{
		what: "the mark of the end of the job before", before: true, mark: &queue.RetryMark{Ends: "cancelled", Reason: "cancelled by an operator"},
		safe: called(1, "done"), once: called(1, "done"),
	},
	{
		what: "the last record of the job before", before: true, record: &ledger.Record{Call: 1, Attempt: 1, Outcome: "done", Final: true},
		safe: called(1, "done", "done"), once: called(1, "done", "done"),
	},
	{what: "ends of the job before", taken: true, safe: called(1, "done"), once: called(1, "done")},
	{what: "ends of the job before, and an intent", taken: true, intents: []int{1}, safe: called(2, "retry", "done"), once: parked(1, "unknown")},
	{
		what: "ends of the job before, and the mark of an end", taken: true, mark: &queue.RetryMark{Ends: "cancelled", Reason: "cancelled by an operator"},
		safe: uncalled("cancelled"), once: uncalled("cancelled"),
	},
	{what: "one intent of two jobs", jobs: 2, intents: []int{1}, safe: outcomeOf{calls: 2, results: 2}, once: outcomeOf{}},
}

// TestRecovery leaves a worker's streams in every state in which a death can leave them, and starts one.
func TestRecovery(t *testing.T) {
	t.Parallel()
	r, notBefore := leftRig(t)
	r.start()
	r.checkLeftovers(notBefore)
	letters := r.messages("WEIR_DEAD")
	calls := len(r.api.All())
	r.stop()
	r.start()
	if n, m := r.messages("WEIR_DEAD"), len(r.api.All()); n != letters || m != calls {
		t.Errorf("another restart made %d letters of %d, %d calls of %d", n, letters, m, calls)
	}
}

// TestRecoveryAfterMove does the same on another server, to which everything was moved in the state in which the death
// left it.
func TestRecoveryAfterMove(t *testing.T) {
	t.Parallel()
	r, notBefore := leftRig(t)
	url := startTarget(t)
	if got := command(t, []string{"WEIR_REPLICAS=1"}, "move", "--from", filepath.Join(r.dir, "data"), "--to", url); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	s := externalSettings(t, url, filepath.Join(r.dir, "weir.yaml"), "there")
	w, err := worker.Start(await.Context(t, "a worker to start"), s, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	rigBeside(t, w, r.api).checkLeftovers(notBefore)
}

// leftRig is a weir that died, with a job in every state, and the times before which they must not be called.
func leftRig(t *testing.T) (r *rig, notBefore map[string]time.Time) {
	t.Helper()
	orders := map[string][]string{}
	for i, c := range leftovers {
		orders[fmt.Sprintf("safe-%d", i)], orders[fmt.Sprintf("once-%d", i)] = c.orders, c.orders
	}
	api := startOrdered(t, orders)
	r = rigOn(t, api, fmt.Sprintf(outcomeYAML, api.URL(), "127.0.0.1:1", "127.0.0.1:1"))
	r.stop()
	notBefore = map[string]time.Time{}
	r.offline(func(o *offline) {
		for i, c := range leftovers {
			for _, api := range []string{"safe", "once"} {
				key := fmt.Sprintf("%s-%d", api, i)
				notBefore[key] = o.leave(api, key, c)
			}
		}
		for _, api := range []string{"safe", "once"} { // of jobs that are gone
			o.put(queueName(api, 0, "i", "gone"), "", []queue.Intent{{Seq: 1 << 40, Call: 1}}, nil)
			o.put(queueName(api, 0, "r", "gone"), "", queue.RetryMark{Seq: 1 << 40, Calls: 1}, nil)
		}
	})
	return r, notBefore
}

// checkLeftovers waits until every job that was left has ended, and holds how.
func (r *rig) checkLeftovers(notBefore map[string]time.Time) {
	r.t.Helper()
	for _, api := range []string{"safe", "once"} {
		r.eventually("an empty queue", func() bool { return r.waiting(api) == 0 })
		for i, c := range leftovers {
			r.t.Run(api+" "+c.what, func(t *testing.T) {
				key, want := fmt.Sprintf("%s-%d", api, i), map[string]outcomeOf{"safe": c.safe, "once": c.once}[api]
				if want.as != "" {
					r.checkLeft(t, api, key, want)
				}
				arrivals := r.api.Arrivals(key)
				if len(arrivals) != want.calls {
					t.Errorf("%d calls, want %d", len(arrivals), want.calls)
				}
				for _, a := range arrivals {
					if at := r.api.Started().Add(time.Duration(a.At)); c.wait > 0 && at.Before(notBefore[key]) {
						t.Errorf("called %v too early", notBefore[key].Sub(at))
					}
				}
				if n := len(r.results(api, key)); n != want.results {
					t.Errorf("%d results, want %d", n, want.results)
				}
				if c.result && len(r.letters(api, key)) > 0 {
					t.Error("a letter beside a result")
				}
				if c.result && len(r.ledger(api, key)) != 1 {
					t.Errorf("%d records of a call with a result", len(r.ledger(api, key)))
				}
			})
		}
	}
}

// checkLeft is checkEnd for a job of which the test wrote a part of the history.
func (r *rig) checkLeft(t *testing.T, api, key string, want outcomeOf) {
	t.Helper()
	results, letters := r.results(api, key), r.letters(api, key)
	if len(results)+len(letters) != 1 {
		t.Fatalf("%d results and %d letters", len(results), len(letters))
	}
	got := endIn(t, results, letters)
	for _, c := range r.ledger(api, key) {
		got.ledger = append(got.ledger, c.Outcome)
	}
	if !sameEnd(got, want.end) {
		t.Errorf("ended as %+v, want %+v", got, want.end)
	}
}

// offline is the storage of a worker that does not run.
type offline struct {
	t       *testing.T
	js      jetstream.JetStream
	safeKey string
}

func (r *rig) offline(do func(o *offline)) {
	r.t.Helper()
	server, err := embedded.Start(r.t.Context(), embedded.Options{MaxStore: roomy, Listen: "127.0.0.1:0", Dir: filepath.Join(r.dir, "data"), SyncAlways: true, Log: testLog(r.t)})
	if err != nil {
		r.t.Fatal(err)
	}
	defer server.Shutdown()
	nc, err := nats.Connect(server.ClientURL())
	if err != nil {
		r.t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		r.t.Fatal(err)
	}
	place, err := url.Parse(r.api.URL() + "/v1")
	if err != nil {
		r.t.Fatal(err)
	}
	safe := httpcall.API{URL: place, Idempotency: &httpcall.Idempotency{Header: "Idempotency-Key"}, Rule: &ingest.Rule{Methods: []string{"POST"}}}
	do(&offline{r.t, js, safe.KeyIdentity()})
}

// leave writes what is left of a job, and returns the time before which it must not be called.
func (o *offline) leave(api, key string, c left) time.Time {
	p := queue.PartitionOf(key, 4)
	var seqs []uint64
	for n := range max(1, c.jobs) {
		id := fmt.Sprintf("%s-job-%d", key, n)
		header := nats.Header{"Weir-Job-Id": {id}, "Weir-Path": {"/" + key}}
		if c.late {
			header["Weir-Deadline"] = []string{"1ms"}
		}
		seqs = append(seqs, o.put(queueName(api, p, "j", key), key+"/"+id, "pay", header))
	}
	stream, until := queue.StreamName(api, p), time.Now().Add(c.wait)
	accepted := o.storedAt(stream, seqs[0])
	var of bucket.Micros // markers of earlier versions do not tell
	if c.before {
		accepted = accepted.Add(-time.Hour)
		of = bucket.MicrosOf(accepted)
	}
	if c.taken {
		o.take(api, key, fmt.Sprintf("%s.%d", stream, seqs[0]))
		o.take(api, key, fmt.Sprintf("%s.%d.%d", stream, seqs[0], bucket.MicrosOf(accepted.Add(-time.Hour))))
	}
	intend := func() {
		for i, call := range c.intents {
			var intents []queue.Intent
			for _, seq := range seqs {
				intents = append(intents, queue.Intent{
					Seq: seq, Call: call, Repeatable: api == "safe", Idempotency: c.keyed, Deaths: c.deaths, Accepted: of, Epoch: c.epoch,
				})
			}
			o.put(queueName(api, p, "i", fmt.Sprintf("%s-%d", key, i)), "", intents, nil)
		}
	}
	if !c.behind {
		intend()
	}
	if c.mark != nil {
		mark := *c.mark
		mark.Seq, mark.NotBefore, mark.Accepted = seqs[0], bucket.MicrosOf(until), of
		o.put(queueName(api, p, "r", key), "", mark, nil)
	}
	if c.behind {
		intend()
	}
	if c.record != nil {
		record := *c.record
		record.API, record.Key, record.Stream, record.Seq, record.NotBefore = api, key, stream, seqs[0], bucket.MicrosOf(until)
		record.Job, record.Dedupe, record.Accepted, record.Ended = key+"-job-0", key+"-job-0", accepted, time.Now()
		if record.Idempotency == safeKey {
			record.Idempotency = o.safeKey
		}
		if c.other {
			record.Key, record.Dedupe = key+"-other", "another"
		}
		o.put(record.Subject(), "", record, nil)
	}
	if c.result {
		o.put(ledger.ResultSubject(api, key), fmt.Sprintf("result.%s.%d", stream, seqs[0]), "kept", nats.Header{
			"Weir-Job-Id": {key + "-job-0"}, "Weir-Outcome": {"done"}, "Weir-Status": {"201"}, "Weir-Attempts": {"1"}, "Weir-Calls": {"1"},
			"Weir-Called-At": {until.Format(time.RFC3339Nano)}, "Weir-Finished-At": {until.Format(time.RFC3339Nano)},
		})
	}
	return until
}

// take stores a result, a record and a letter of another job under the ids that go with an origin.
func (o *offline) take(api, key, origin string) {
	other := nats.Header{"Weir-Job-Id": {"lost"}, "Weir-Outcome": {"done"}, "Weir-Status": {"200"}}
	o.put(ledger.ResultSubject(api, key+"-lost"), "result."+origin, "lost", other)
	o.put("weir.calls."+api+"."+key+"-lost", "call."+origin+".1", "lost", nil)
	o.put("weir.dead."+api+".unknown."+key+"-lost", "letter."+origin, "lost", other)
}

// storedAt is when a stream stored a message.
func (o *offline) storedAt(stream string, seq uint64) time.Time {
	o.t.Helper()
	s, err := o.js.Stream(o.t.Context(), stream)
	if err != nil {
		o.t.Fatal(err)
	}
	msg, err := s.GetMsg(o.t.Context(), seq)
	if err != nil {
		o.t.Fatal(err)
	}
	return msg.Time
}

func (o *offline) put(subject, id string, value any, h nats.Header) uint64 {
	o.t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		o.t.Fatal(err)
	}
	msg := nats.NewMsg(subject)
	msg.Data = data
	for name, values := range h {
		msg.Header[name] = values
	}
	if id != "" {
		msg.Header.Set("Nats-Msg-Id", id)
	}
	ack, err := o.js.PublishMsg(o.t.Context(), msg)
	if err != nil {
		o.t.Fatal(err)
	}
	return ack.Sequence
}

func queueName(api string, p int, kind, token string) string {
	return fmt.Sprintf("weir.q.%s.%d.%s.%s", api, p, kind, token)
}
