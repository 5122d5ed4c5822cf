package store

import (
	"fmt"
	"testing"
	"time"

	"weir/bucket/queue"
	"weir/dispatcher/ledger"
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
func (s Store) CheckLeftovers(notBefore map[string]time.Time) {
	s.T.Helper()
	for _, api := range []string{"safe", "once"} {
		s.Eventually("an empty queue", func() bool { return s.Waiting(api) == 0 })
		for i, c := range Leftovers {
			s.T.Run(api+" "+c.what, func(t *testing.T) {
				key, want := fmt.Sprintf("%s-%d", api, i), map[string]OutcomeOf{"safe": c.safe, "once": c.once}[api]
				if want.As != "" {
					s.CheckLeft(t, api, key, want)
				}
				arrivals := s.API.Arrivals(key)
				if len(arrivals) != want.calls {
					t.Errorf("%d calls, want %d", len(arrivals), want.calls)
				}
				for _, a := range arrivals {
					if at := s.API.Started().Add(time.Duration(a.At)); c.wait > 0 && at.Before(notBefore[key]) {
						t.Errorf("called %v too early", notBefore[key].Sub(at))
					}
				}
				if n := len(s.Results(api, key)); n != want.results {
					t.Errorf("%d results, want %d", n, want.results)
				}
				if c.result && len(s.Letters(api, key)) > 0 {
					t.Error("a letter beside a result")
				}
				if c.result && len(s.Ledger(api, key)) != 1 {
					t.Errorf("%d records of a call with a result", len(s.Ledger(api, key)))
				}
			})
		}
	}
}

// CheckLeft is CheckEnd for a job whose history was partly written by the test.
func (s Store) CheckLeft(t *testing.T, api, key string, want OutcomeOf) {
	t.Helper()
	results, letters := s.Results(api, key), s.Letters(api, key)
	if len(results)+len(letters) != 1 {
		t.Fatalf("%d results and %d letters", len(results), len(letters))
	}
	got := endIn(t, results, letters)
	for _, c := range s.Ledger(api, key) {
		got.Ledger = append(got.Ledger, c.Outcome)
	}
	if !sameEnd(got, want.End) {
		t.Errorf("ended as %+v, want %+v", got, want.End)
	}
}
