package takeover

import (
	"slices"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/recovery"
	"weir/ingest"
)

// TestEndIsLookedForSinceTheFirstIntent checks that an end of an operation is looked up from the first intent of an end
// on, since several owners may have intended it and the first may have stored it. For a call that was not accepted only
// the newest intent counts.
func TestEndIsLookedForSinceTheFirstIntent(t *testing.T) {
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	e := queue.Entry{Kind: queue.JobEntry, Seq: 7, Key: "k", Time: at, Header: map[string][]string{ingest.HeaderMsgID: {ingest.StoredID("k", "j")}}}
	for _, c := range []struct {
		operation *queue.Operation
		since     time.Time
	}{{&queue.Operation{}, at.Add(2 * time.Minute)}, {nil, at.Add(3 * time.Minute)}} {
		r := newReplay()
		f := r.of(7)
		for n, call := range []int{1, 2, 2} {
			f.intents = append(f.intents, lane.FoundIntent{
				Intent: queue.Intent{Seq: 7, Call: call, Accepted: bucket.MicrosOf(at)},
				Mark:   &lane.IntentMark{Seq: uint64(11 + n), Users: 1}, Stored: at.Add(time.Duration(n+1) * time.Minute),
			})
		}
		f.marks = append(f.marks, foundMark{queue.RetryMark{Seq: 7, Calls: 2, Accepted: bucket.MicrosOf(at), Operation: c.operation}, 14, time.Time{}})
		if h, _ := r.history(e); h.intent == nil || h.intent.Mark.Seq != 13 || !h.intent.Stored.Equal(c.since) {
			t.Errorf("an operation: %v: the intent is %+v", c.operation != nil, h.intent)
		}
	}
}

// TestHistory checks which of the markers and records count that the stream and the ledger have for a sequence: only
// the newest ones of the present job. The other markers are discarded, each once.
func TestHistory(t *testing.T) {
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	mine, other := bucket.MicrosOf(at), bucket.MicrosOf(at.Add(-time.Hour))
	intent := func(seq uint64, call int, accepted bucket.Micros) lane.FoundIntent {
		return lane.FoundIntent{Intent: queue.Intent{Seq: 7, Call: call, Accepted: accepted, Epoch: 1}, Mark: &lane.IntentMark{Seq: seq, Users: 1}, Stored: at}
	}
	mark := func(seq uint64, calls int, accepted bucket.Micros) foundMark {
		return foundMark{RetryMark: queue.RetryMark{Seq: 7, Calls: calls, Accepted: accepted, Epoch: 1}, seq: seq}
	}
	end := func(seq uint64, calls int) foundMark {
		m := mark(seq, calls, mine)
		m.Ends = "expired"
		return m
	}
	reused := func(seq uint64) foundMark {
		m := mark(seq, 0, mine)
		m.Ends = queue.EndsReused
		return m
	}
	ofLater := func(m foundMark) foundMark {
		m.Epoch = 2
		return m
	}
	record := func(accepted time.Time, final bool) ledger.LastCall {
		return (&ledger.Record{Key: "k", Dedupe: "j", Call: 3, Accepted: accepted, Final: final}).Last()
	}
	done := func(c ledger.LastCall) ledger.LastCall {
		c.Outcome = ledger.Done
		return c
	}
	for _, c := range []struct {
		what     string
		found    found
		record   *ledger.LastCall
		want     recovery.Found
		outdated []uint64 // sequences of markers
	}{
		{what: "nothing"},
		{what: "an intent", found: found{intents: []lane.FoundIntent{intent(11, 1, mine)}}, want: recovery.Found{Intended: 1}},
		{what: "an intent of another job", found: found{intents: []lane.FoundIntent{intent(11, 1, other)}}, outdated: []uint64{11}},
		{
			what: "intents of two calls", found: found{intents: []lane.FoundIntent{intent(11, 1, mine), intent(12, 2, mine)}},
			want: recovery.Found{Intended: 2}, outdated: []uint64{11},
		},
		{
			what: "two intents of a call whose slot was missed", found: found{intents: []lane.FoundIntent{intent(11, 2, mine), intent(12, 2, mine)}},
			want: recovery.Found{Intended: 2}, outdated: []uint64{11},
		},
		{
			what: "an intent that was stored late", found: found{intents: []lane.FoundIntent{intent(11, 2, mine), intent(12, 1, mine)}},
			want: recovery.Found{Intended: 2}, outdated: []uint64{12},
		},
		{
			what: "an intent behind another job's", found: found{intents: []lane.FoundIntent{intent(11, 4, other), intent(12, 1, mine)}},
			want: recovery.Found{Intended: 1}, outdated: []uint64{11},
		},
		{
			what: "marks of two calls", found: found{marks: []foundMark{mark(11, 1, mine), mark(12, 2, mine)}},
			want: recovery.Found{Recorded: 2}, outdated: []uint64{11},
		},
		{
			what: "a mark that stands twice", found: found{marks: []foundMark{mark(11, 2, mine), mark(12, 2, mine)}},
			want: recovery.Found{Recorded: 2}, outdated: []uint64{12},
		},
		{
			what: "a mark of another job", found: found{marks: []foundMark{mark(11, 5, other), mark(12, 2, mine)}},
			want: recovery.Found{Recorded: 2}, outdated: []uint64{11},
		},
		{
			what: "an end, and a retry mark behind it", found: found{marks: []foundMark{mark(11, 1, mine), end(12, 1), mark(13, 2, mine)}},
			want: recovery.Found{Recorded: 1, Ending: true}, outdated: []uint64{11, 13},
		},
		{
			what: "an end that was stored again", found: found{marks: []foundMark{end(11, 1), end(12, 1)}},
			want: recovery.Found{Recorded: 1, Ending: true}, outdated: []uint64{11},
		},
		{
			what: "an end with another job's answer", found: found{marks: []foundMark{reused(11)}},
			want: recovery.Found{Ending: true, Forgoing: true},
		},
		{
			what: "the same, and a retry mark behind it", found: found{marks: []foundMark{reused(11), mark(12, 1, mine)}},
			want: recovery.Found{Recorded: 1}, outdated: []uint64{11},
		},
		{
			what: "the same, stored late", found: found{marks: []foundMark{mark(11, 1, mine), reused(12)}},
			want: recovery.Found{Recorded: 1}, outdated: []uint64{12},
		},
		{
			what: "the same, and another end behind it", found: found{marks: []foundMark{reused(11), end(12, 0)}},
			want: recovery.Found{Ending: true}, outdated: []uint64{11},
		},
		{
			what: "the same behind another end", found: found{marks: []foundMark{end(11, 0), reused(12)}},
			want: recovery.Found{Ending: true}, outdated: []uint64{12},
		},
		{
			what: "the same by a later owner, behind another end, which came late", found: found{marks: []foundMark{end(11, 0), ofLater(reused(12))}},
			want: recovery.Found{Ending: true, Forgoing: true}, outdated: []uint64{11},
		},
		{
			what: "the same by a later owner, and another end, which came late", found: found{marks: []foundMark{ofLater(reused(11)), end(12, 0)}},
			want: recovery.Found{Ending: true, Forgoing: true}, outdated: []uint64{12},
		},
		{
			what: "an end, and an intent behind it", found: found{intents: []lane.FoundIntent{intent(12, 2, mine)}, marks: []foundMark{end(11, 1)}},
			want: recovery.Found{Recorded: 1, Intended: 2, Ending: true, Overruled: true},
		},
		{
			what: "an end, and an intent before it", found: found{intents: []lane.FoundIntent{intent(11, 2, mine)}, marks: []foundMark{end(12, 1)}},
			want: recovery.Found{Recorded: 1, Intended: 2, Ending: true},
		},
		{what: "a record", record: new(record(at, false)), want: recovery.Found{Recorded: 3}},
		{what: "the last record", record: new(record(at, true)), want: recovery.Found{Recorded: 3, Ended: true}},
		{what: "a record that says done", record: new(done(record(at, true))), want: recovery.Found{Recorded: 3, Ended: true, Complete: true}},
		{what: "another job's record", record: new(record(at.Add(-time.Hour), true))},
		{
			what: "a record behind a mark", found: found{marks: []foundMark{mark(11, 1, mine)}, intents: []lane.FoundIntent{intent(12, 3, mine)}},
			record: new(record(at, true)), want: recovery.Found{Recorded: 3, Intended: 3, Ended: true, Overruled: true},
		},
	} {
		r := newReplay()
		r.found[7] = &c.found
		if c.record != nil {
			r.records = map[uint64]ledger.LastCall{7: *c.record}
		}
		h, outdated := r.history(queue.Entry{
			Kind: queue.JobEntry, Seq: 7, Key: "k", Time: at, Header: map[string][]string{ingest.HeaderMsgID: {ingest.StoredID("k", "j")}},
		})
		if got := h.found(); got != c.want {
			t.Errorf("%s: %+v is known, want %+v", c.what, got, c.want)
		}
		var seqs []uint64
		for _, i := range outdated.intents {
			seqs = append(seqs, i.Mark.Seq)
		}
		for _, m := range outdated.marks {
			seqs = append(seqs, m.seq)
		}
		if !slices.Equal(seqs, c.outdated) || len(r.found) != 0 {
			t.Errorf("%s: the markers %d are let go of, want %d; %d are left", c.what, seqs, c.outdated, len(r.found))
		}
	}
}

// TestHistoryOfALoneResult checks that a job's result is known even without a marker or a record.
func TestHistoryOfALoneResult(t *testing.T) {
	h := jobHistory{result: &ledger.StoredResult{At: 3}}
	if got := h.found(); got != (recovery.Found{Result: true}) || recovery.Judge(got) != recovery.HasResult {
		t.Errorf("%+v is known", got)
	}
}
