package webhook

import (
	"log/slog"
	"testing"
	"time"

	"weir/cmd/weir/internal/serve/admin"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/ingest/await"
)

// TestPosting checks that a position says of an end only what it proves.
func TestPosting(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	e := entry{Seq: 100, Open: []underWay{{90, at}}, Unread: 4, From: 50, Failing: at, Why: "answered 503"}
	e.GivenUp = e.GivenUp.and(1, givenEnd{95, at, "answered 422"})
	listed := e
	listed.GivenUp.Unlisted = 80
	for name, c := range map[string]struct {
		of   entry
		seq  uint64
		want admin.PostingState
	}{
		"not read yet":                     {e, 101, admin.PostingWaits},
		"under way":                        {e, 90, admin.PostingTried},
		"given up":                         {e, 95, admin.PostingGivenUp},
		"before the callback":              {e, 49, admin.PostingSettled},
		"the callback's first":             {e, 50, admin.Posted},
		"the newest":                       {e, 100, admin.Posted},
		"older than the list":              {listed, 80, admin.PostingSettled},
		"in the list's span":               {listed, 81, admin.Posted},
		"before the callback and the list": {listed, 49, admin.PostingSettled},
	} {
		p := c.of.posting(c.seq)
		if p.State != c.want {
			t.Errorf("%s: %s, want %s", name, p.State, c.want)
		}
		waits := c.want == admin.PostingWaits || c.want == admin.PostingTried
		if waits != (p.Behind == 5) || waits != p.Failing.Equal(at) {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if p := e.posting(95); !p.GivenUpAt.Equal(at) || p.Why != "answered 422" {
		t.Errorf("given up: %+v", p)
	}
}

// TestGivenUpEndsAreListed checks that the list of given-up ends is sorted and bounded, and that the position says from
// where on it is complete.
func TestGivenUpEndsAreListed(t *testing.T) {
	t.Parallel()
	g, before := given{}, given{}
	for i := range 2 * mostListed {
		before = g
		g = g.and(1, givenEnd{uint64(1000 - i), time.Now(), "answered 422"}) // ends are given up in any order
		g = g.and(1, givenEnd{uint64(2000 + i), time.Now(), "answered 422"})
	}
	if len(g.Ends) != mostListed || g.Ends[0].Seq != 2000+mostListed || g.Ends[mostListed-1].Seq != 2000+2*mostListed-1 {
		t.Fatalf("listed are %+v", g.Ends)
	}
	if g.Count != 4*mostListed || g.Unlisted != 2000+mostListed-1 {
		t.Errorf("%d were given up, and up to %d some are not listed", g.Count, g.Unlisted)
	}
	if _, ok := before.find(2000 + 2*mostListed - 1); ok {
		t.Error("an earlier value has a later end")
	}
	if again := g.and(1, g.Ends[0]); len(again.Ends) != mostListed {
		t.Errorf("%d ends are listed, one of them twice", len(again.Ends))
	}
}

// TestPostingOfSenders checks that senders know what became of an end: of results and of letters, by the position of
// the replica that posts.
func TestPostingOfSenders(t *testing.T) {
	r := newEndsRig(t)
	before := r.result("pay", "before", nil)
	r.start()
	after, letter := r.result("pay", "after", nil), r.letter("pay", "dead")
	await.Until(t, "both posts", func() bool { return len(r.took("pay")) == 2 })
	of := func(api, stream string, seq uint64) admin.PostingState {
		p := r.senders.Posting(admin.EndPlace{API: api, Stream: stream, Seq: seq})
		if p == nil {
			return ""
		}
		return p.State
	}
	await.Until(t, "the position", func() bool {
		return of("pay", ledger.ResultsStream, after) == admin.Posted &&
			of("pay", deadletter.Stream, letter) == admin.Posted
	})
	for _, c := range []struct {
		api, stream string
		seq         uint64
		want        admin.PostingState
	}{
		{"pay", ledger.ResultsStream, before, admin.PostingSettled},
		{"pay", ledger.ResultsStream, after + 1, admin.PostingWaits},
		{"other", ledger.ResultsStream, after, ""},
		{"pay", ledger.CallsStream, after, ""},
	} {
		if got := of(c.api, c.stream, c.seq); got != c.want {
			t.Errorf("%s %s %d: %q, want %q", c.api, c.stream, c.seq, got, c.want)
		}
	}
}

// TestPostingAfterALostPosition checks that senders claim nothing of the ends from before the position was stored anew.
func TestPostingAfterALostPosition(t *testing.T) {
	r := newEndsRig(t)
	stop := r.start()
	seq := r.result("pay", "first", nil)
	await.Until(t, "the post", func() bool { return len(r.took("pay")) == 1 })
	stop()
	missed := r.result("pay", "second", nil)
	if err := r.kv.Delete(t.Context(), "callback.pay.done.position"); err != nil {
		t.Fatal(err)
	}
	senders := r.newSenders(r.config, 1, slog.DiscardHandler)
	s := &sending{sender: senders.callback("pay.done"), valid: func() bool { return true }}
	if _, err := s.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := r.noted("pay.done")
	for of, want := range map[uint64]admin.PostingState{seq: admin.PostingSettled, missed: admin.PostingSettled, missed + 1: admin.PostingWaits} {
		if p := e.posting(of); p.State != want {
			t.Errorf("of end %d the position says %s, want %s", of, p.State, want)
		}
	}
}

// TestGivenUpEndIsNotResumed checks that a position never lists an end as given up and as under way. Otherwise the next
// start would post the end, and the list would still have it.
func TestGivenUpEndIsNotResumed(t *testing.T) {
	t.Parallel()
	s := &sending{sender: &sender{resumes: true}}
	for seq := range uint64(3) {
		s.progress.take(seq+1, time.Now(), collected{held: true, begins: true})
	}
	s.health.gaveUp(time.Now(), 1, 2, "answered 422") // its delivery has not returned yet
	e := s.entry()
	if len(e.Open) != 2 || e.Open[0].Seq != 1 || e.Open[1].Seq != 3 {
		t.Errorf("under way are %+v", e.Open)
	}
	if p := e.posting(2); p.State != admin.PostingGivenUp {
		t.Errorf("of the end that was given up the position says %+v", p)
	}
}
