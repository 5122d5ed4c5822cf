package weirtest

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/cmd/weir/internal/serve/embedded"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Left is what a dead worker left of one job, and the end that the job must have.
type Left struct {
	what    string
	jobs    int    // 1 by default
	Intents []int  // calls that were about to start, one message each
	deaths  int    // how many deaths the intents count
	keyed   string // form of the idempotency keys in the intents
	epoch   uint64 // of the intents' owner
	mark    *queue.RetryMark
	behind  bool // the intents come after the mark
	Record  *ledger.Record
	other   bool // the record is about another job, from a stream that is gone
	before  bool // everything is about an earlier job, which had the sequence before the server lost its last writes
	taken   bool // like before, but the earlier job also left a result, a record and a letter, whose ids the streams know
	result  bool
	reused  bool          // the result is the answer of another job
	late    bool          // its deadline has passed
	wait    time.Duration // NotBefore of the mark or the record, relative to when it is written
	Orders  []string      // to the api after the restart
	safe    OutcomeOf
	once    OutcomeOf
}

// OutcomeOf is the expected end of a job, and the expected number of its calls at the api.
type OutcomeOf struct {
	End
	calls   int
	results int
}

// pastEnd returns the outcome of a job that ended before the restart.
func pastEnd(results int) OutcomeOf { return OutcomeOf{results: results} }

func answered(attempts int, ledger ...string) OutcomeOf {
	return OutcomeOf{End: End{As: "done", Status: 200, Attempts: attempts, Ledger: ledger}, calls: 1, results: 1}
}

func parked(attempts int, ledger ...string) OutcomeOf {
	return OutcomeOf{End: End{As: "unknown", Attempts: attempts, Billed: "unknown", Ledger: ledger}}
}

// uncalled returns the outcome of a job that was never called and became a letter.
func uncalled(reason string) OutcomeOf { return OutcomeOf{End: End{As: reason, Billed: "no"}} }

// forgone returns the outcome of a job that got the answer of another job and was not called.
func forgone() OutcomeOf {
	return OutcomeOf{End: End{As: "done", Status: 201, Ledger: []string{"reused"}}, results: 1}
}

// poisoned returns the outcome of a job that killed too many workers.
func poisoned() OutcomeOf {
	return OutcomeOf{End: End{As: "exhausted", Attempts: 1, Billed: "unknown", Ledger: []string{"exhausted"}}}
}

var Leftovers = []Left{
	{what: "nothing", safe: answered(1, "done"), once: answered(1, "done")},
	{what: "an intent", Intents: []int{1}, safe: answered(2, "retry", "done"), once: parked(1, "unknown")},
	{what: "an intent under another key", Intents: []int{1}, keyed: "Other-Key@0", safe: parked(1, "unknown"), once: parked(1, "unknown")},
	{
		what: "a mark of a call under another key", mark: &queue.RetryMark{Calls: 1, Attempts: 1, Billed: "unknown", Idempotency: "Other-Key@0"},
		safe: parked(1), once: parked(1),
	},
	{
		what: "the record of a retry under another key", Intents: []int{1},
		Record: &ledger.Record{Call: 1, Attempt: 1, Outcome: "retry", Billed: "unknown", Idempotency: "Other-Key@0"},
		safe:   parked(1, "retry"), once: parked(1, "retry"),
	},
	{
		what: "a mark of a pushback under another key", mark: &queue.RetryMark{Calls: 1, Billed: "no", Pushback: true, Idempotency: "Other-Key@0"},
		safe: answered(1, "done"), once: answered(1, "done"),
	},
	{what: "an intent after four deaths", Intents: []int{1}, deaths: 4, safe: poisoned(), once: parked(1, "unknown")},
	{what: "intents of two calls", Intents: []int{1, 2}, safe: answered(2, "retry", "done"), once: parked(1, "unknown")},
	{what: "a mark", mark: &queue.RetryMark{Calls: 1, Attempts: 1}, safe: answered(2, "done"), once: answered(2, "done")},
	{
		what: "a mark of later", mark: &queue.RetryMark{Calls: 3, Attempts: 1, Pushback: true}, wait: 1500 * time.Millisecond,
		safe: answered(2, "done"), once: answered(2, "done"),
	},
	{
		what: "a mark of the last attempt", mark: &queue.RetryMark{Calls: 2, Attempts: 2}, Orders: []string{"status=500", "status=500"},
		safe: OutcomeOf{End: End{As: "exhausted", Status: 500, Attempts: 3, Billed: "unknown", Ledger: []string{"exhausted"}}, calls: 1},
		once: OutcomeOf{End: End{As: "unknown", Status: 500, Attempts: 3, Billed: "unknown", Ledger: []string{"unknown"}}, calls: 1},
	},
	{what: "a mark and its intent", Intents: []int{1}, mark: &queue.RetryMark{Calls: 1}, safe: answered(1, "done"), once: answered(1, "done")},
	{what: "a mark and the next intent", Intents: []int{1, 2}, mark: &queue.RetryMark{Calls: 1}, safe: answered(2, "retry", "done"), once: parked(1, "unknown")},
	{
		what: "the record of a retry", Intents: []int{1}, Record: &ledger.Record{Call: 1, Attempt: 1, Outcome: "retry"},
		safe: answered(2, "retry", "done"), once: answered(2, "retry", "done"),
	},
	{
		what: "the record of a pushback", Intents: []int{1}, Record: &ledger.Record{Call: 1, Outcome: "pushback"}, wait: 1500 * time.Millisecond,
		safe: answered(1, "pushback", "done"), once: answered(1, "pushback", "done"),
	},
	{
		what: "the last record", Intents: []int{1}, Record: &ledger.Record{Call: 1, Attempt: 1, Outcome: "done", Final: true}, result: true,
		safe: pastEnd(1), once: pastEnd(1),
	},
	{
		what: "the last record and no intent", Record: &ledger.Record{Call: 1, Attempt: 1, Outcome: "done", Final: true}, result: true,
		safe: pastEnd(1), once: pastEnd(1),
	},
	{
		what: "the last record, and its result is gone", Intents: []int{1}, Record: &ledger.Record{Call: 1, Attempt: 1, Outcome: "done", Final: true},
		safe: pastEnd(0), once: pastEnd(0),
	},
	{
		what: "the last record of another job", Record: &ledger.Record{Call: 1, Attempt: 1, Outcome: "done", Final: true}, other: true,
		safe: answered(1, "done"), once: answered(1, "done"),
	},
	{what: "the last record and no mark", Record: &ledger.Record{Call: 1, Attempt: 1, Outcome: "rejected", Final: true}, safe: pastEnd(0), once: pastEnd(0)},
	{what: "a result", Intents: []int{1}, result: true, safe: OutcomeOf{results: 1}, once: OutcomeOf{results: 1}},
	{what: "a result, and its deadline is past", Intents: []int{1}, result: true, late: true, safe: OutcomeOf{results: 1}, once: OutcomeOf{results: 1}},
	{what: "a result and nothing else", result: true, safe: OutcomeOf{results: 1}, once: OutcomeOf{results: 1}},
	{
		what: "the mark of an end", mark: &queue.RetryMark{Ends: "cancelled", Reason: "cancelled by an operator"},
		safe: uncalled("cancelled"), once: uncalled("cancelled"),
	},
	{
		what: "an intent and the mark of an end", Intents: []int{1}, mark: &queue.RetryMark{Ends: "over_budget", Reason: "the budget is spent"},
		safe: uncalled("over_budget"), once: uncalled("over_budget"),
	},
	{
		what: "the mark of an end and an intent", Intents: []int{1}, behind: true, mark: &queue.RetryMark{Ends: "over_budget", Reason: "the budget is spent"},
		safe: answered(2, "retry", "done"), once: parked(1, "unknown"),
	},
	{
		what: "an intent and the mark of an end by an earlier owner", Intents: []int{1}, epoch: 8,
		mark: &queue.RetryMark{Ends: "expired", Reason: "it was late", Epoch: 7}, safe: answered(2, "retry", "done"), once: parked(1, "unknown"),
	},
	{
		what: "an intent and the mark of an end by its owner", Intents: []int{1}, epoch: 8,
		mark: &queue.RetryMark{Ends: "expired", Reason: "it was late", Epoch: 8}, safe: uncalled("expired"), once: uncalled("expired"),
	},
	{what: "the intent of the job before", before: true, Intents: []int{1}, safe: answered(1, "done"), once: answered(1, "done")},
	{
		what: "the mark of the end of the job before", before: true, mark: &queue.RetryMark{Ends: "cancelled", Reason: "cancelled by an operator"},
		safe: answered(1, "done"), once: answered(1, "done"),
	},
	{
		what: "the last record of the job before", before: true, Record: &ledger.Record{Call: 1, Attempt: 1, Outcome: "done", Final: true},
		safe: answered(1, "done", "done"), once: answered(1, "done", "done"),
	},
	{what: "ends of the job before", taken: true, safe: answered(1, "done"), once: answered(1, "done")},
	{what: "ends of the job before, and an intent", taken: true, Intents: []int{1}, safe: answered(2, "retry", "done"), once: parked(1, "unknown")},
	{
		what: "ends of the job before, and the mark of an end", taken: true, mark: &queue.RetryMark{Ends: "cancelled", Reason: "cancelled by an operator"},
		safe: uncalled("cancelled"), once: uncalled("cancelled"),
	},
	{what: "the mark of an end with another job's answer", mark: &queue.RetryMark{Ends: queue.EndsReused}, safe: answered(1, "done"), once: answered(1, "done")},
	{
		what: "an intent and the mark of an end with another job's answer", Intents: []int{1}, mark: &queue.RetryMark{Ends: queue.EndsReused},
		safe: answered(1, "done"), once: answered(1, "done"),
	},
	{
		what: "the mark of an end with another job's answer, and an intent", Intents: []int{1}, behind: true, mark: &queue.RetryMark{Ends: queue.EndsReused},
		safe: answered(2, "retry", "done"), once: parked(1, "unknown"),
	},
	{what: "another job's answer", mark: &queue.RetryMark{Ends: queue.EndsReused}, result: true, reused: true, safe: forgone(), once: forgone()},
	{what: "another job's answer, and no mark", result: true, reused: true, safe: forgone(), once: forgone()},
	{
		what: "an intent and another job's answer", Intents: []int{1}, mark: &queue.RetryMark{Ends: queue.EndsReused}, result: true, reused: true,
		safe: forgone(), once: forgone(),
	},
	{
		what: "another job's answer and its record", mark: &queue.RetryMark{Ends: queue.EndsReused}, result: true, reused: true,
		Record: &ledger.Record{Outcome: "reused", Final: true}, safe: pastEnd(1), once: pastEnd(1),
	},
	{what: "one intent of two jobs", jobs: 2, Intents: []int{1}, safe: OutcomeOf{calls: 2, results: 2}, once: OutcomeOf{}},
}

// CheckLeftovers waits until all leftover jobs have ended, and checks their ends.
func (r *Rig) CheckLeftovers(notBefore map[string]time.Time) {
	r.T.Helper()
	for _, api := range []string{"safe", "once"} {
		r.Eventually("an empty queue", func() bool { return r.Waiting(api) == 0 })
		for i, c := range Leftovers {
			r.T.Run(api+" "+c.what, func(t *testing.T) {
				key, want := fmt.Sprintf("%s-%d", api, i), map[string]OutcomeOf{"safe": c.safe, "once": c.once}[api]
				if want.As != "" {
					r.CheckLeft(t, api, key, want)
				}
				arrivals := r.API.Arrivals(key)
				if len(arrivals) != want.calls {
					t.Errorf("%d calls, want %d", len(arrivals), want.calls)
				}
				for _, a := range arrivals {
					if at := r.API.Started().Add(time.Duration(a.At)); c.wait > 0 && at.Before(notBefore[key]) {
						t.Errorf("called %v too early", notBefore[key].Sub(at))
					}
				}
				if n := len(r.Results(api, key)); n != want.results {
					t.Errorf("%d results, want %d", n, want.results)
				}
				if c.result && len(r.Letters(api, key)) > 0 {
					t.Error("a letter beside a result")
				}
				if c.result && len(r.Ledger(api, key)) != 1 {
					t.Errorf("%d records of a call with a result", len(r.Ledger(api, key)))
				}
			})
		}
	}
}

// CheckLeft is CheckEnd for a job whose history was partly written by the test.
func (r *Rig) CheckLeft(t *testing.T, api, key string, want OutcomeOf) {
	t.Helper()
	results, letters := r.Results(api, key), r.Letters(api, key)
	if len(results)+len(letters) != 1 {
		t.Fatalf("%d results and %d letters", len(results), len(letters))
	}
	got := endIn(t, results, letters)
	for _, c := range r.Ledger(api, key) {
		got.Ledger = append(got.Ledger, c.Outcome)
	}
	if !sameEnd(got, want.End) {
		t.Errorf("ended as %+v, want %+v", got, want.End)
	}
}

// Offline gives access to the store of a worker that is not running.
type Offline struct {
	t       *testing.T
	JS      jetstream.JetStream
	safeKey string // form of the idempotency keys in calls of the api safe
}

func (r *Rig) Offline(do func(o *Offline)) {
	r.T.Helper()
	var server *embedded.Server
	var err error
	r.whenUnused(func() error {
		server, err = embedded.Start(r.T.Context(), embedded.Options{MaxStore: Roomy, Listen: "127.0.0.1:0", Dir: filepath.Join(r.Dir, "data"), SyncAlways: true, Log: TestLog(r.T)})
		return err
	})
	if err != nil {
		r.T.Fatal(err)
	}
	defer server.Shutdown()
	nc, err := nats.Connect(server.ClientURL(), nats.Timeout(await.Patience))
	if err != nil {
		r.T.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		r.T.Fatal(err)
	}
	place, err := url.Parse(r.API.URL() + "/v1")
	if err != nil {
		r.T.Fatal(err)
	}
	safe := httpcall.API{URL: place, Idempotency: &httpcall.Idempotency{Header: "Idempotency-Key"}, Rule: &ingest.Rule{Methods: []string{"POST"}}}
	do(&Offline{r.T, js, safe.KeyIdentity()})
}

// Leave writes what is left of a job. It returns the time before which the job must not be called.
func (o *Offline) Leave(api, key string, c Left) time.Time {
	p := queue.PartitionOf(key, 4)
	var seqs []uint64
	for n := range max(1, c.jobs) {
		id := fmt.Sprintf("%s-job-%d", key, n)
		header := nats.Header{"Weir-Job-Id": {id}, "Weir-Path": {"/" + key}}
		if c.late {
			header["Weir-Deadline"] = []string{"1ms"}
		}
		seqs = append(seqs, o.Put(QueueName(api, p, "j", key), key+"/"+id, "pay", header))
	}
	stream, until := queue.StreamName(api, p), time.Now().Add(c.wait)
	accepted := o.StoredAt(stream, seqs[0])
	before := time.Duration(0)
	if c.before {
		before = time.Hour
	}
	accepted = accepted.Add(-before)
	if c.taken {
		o.take(api, key, fmt.Sprintf("%s.%d.%d", stream, seqs[0], bucket.MicrosOf(accepted.Add(-time.Hour))))
	}
	keyed := c.keyed
	if keyed == "" && api == "safe" {
		keyed = o.safeKey
	}
	intend := func() {
		for i, call := range c.Intents {
			var intents []queue.Intent
			for _, seq := range seqs {
				intents = append(intents, queue.Intent{
					Seq: seq, Call: call, Idempotency: keyed, Deaths: c.deaths, KeySum: queue.KeySum(key), Epoch: c.epoch,
					Accepted: bucket.MicrosOf(o.StoredAt(stream, seq).Add(-before)),
				})
			}
			o.Put(QueueName(api, p, "i", fmt.Sprintf("%s-%d", key, i)), "", intents, nil)
		}
	}
	if !c.behind {
		intend()
	}
	if c.mark != nil {
		mark := *c.mark
		mark.Seq, mark.NotBefore, mark.Accepted, mark.KeySum = seqs[0], bucket.MicrosOf(until), bucket.MicrosOf(accepted), queue.KeySum(key)
		o.Put(QueueName(api, p, "r", key), "", mark, nil)
	}
	if c.behind {
		intend()
	}
	if c.Record != nil {
		record := *c.Record
		record.API, record.Key, record.Stream, record.Seq, record.NotBefore = api, key, stream, seqs[0], bucket.MicrosOf(until)
		record.Job, record.Dedupe, record.Accepted, record.Ended = key+"-job-0", key+"-job-0", accepted, time.Now()
		if c.other {
			record.Key, record.Dedupe = key+"-other", "another"
		}
		o.Put(record.Subject(), "", record, nil)
	}
	if c.result {
		h := nats.Header{
			"Weir-Job-Id": {key + "-job-0"}, "Weir-Outcome": {"done"}, "Weir-Status": {"201"}, "Weir-Attempts": {"1"}, "Weir-Calls": {"1"},
			"Weir-Called-At": {until.Format(time.RFC3339Nano)}, "Weir-Finished-At": {until.Format(time.RFC3339Nano)},
		}
		prefix := "result."
		if c.reused {
			prefix = ledger.ReusedPrefix
			h["Weir-Attempts"], h["Weir-Calls"], h[ledger.HeaderReused] = []string{"0"}, []string{"0"}, []string{"another"}
		}
		o.Put(ledger.ResultSubject(api, key), prefix+ledger.OriginOf(stream, seqs[0], bucket.MicrosOf(accepted)), "kept", h)
	}
	return until
}

// take stores a result, a record and a letter of another job, under ids that belong to origin.
func (o *Offline) take(api, key, origin string) {
	other := nats.Header{"Weir-Job-Id": {"lost"}, "Weir-Outcome": {"done"}, "Weir-Status": {"200"}}
	o.Put(ledger.ResultSubject(api, key+"-lost"), "result."+origin, "lost", other)
	o.Put("weir.calls."+api+"."+key+"-lost", "call."+origin+".1", "lost", nil)
	o.Put("weir.dead."+api+".unknown."+key+"-lost", "letter."+origin, "lost", other)
}

// StoredAt returns when a stream stored a message.
func (o *Offline) StoredAt(stream string, seq uint64) time.Time {
	o.t.Helper()
	s, err := o.JS.Stream(o.t.Context(), stream)
	if err != nil {
		o.t.Fatal(err)
	}
	msg, err := s.GetMsg(o.t.Context(), seq)
	if err != nil {
		o.t.Fatal(err)
	}
	return msg.Time
}

func (o *Offline) Put(subject, id string, value any, h nats.Header) uint64 {
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
	ack, err := o.JS.PublishMsg(o.t.Context(), msg)
	if err != nil {
		o.t.Fatal(err)
	}
	return ack.Sequence
}

func QueueName(api string, p int, kind, token string) string {
	return fmt.Sprintf("weir.q.%s.%d.%s.%s", api, p, kind, token)
}
