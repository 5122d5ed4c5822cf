package jobstory

import (
	"log/slog"
	"testing"

	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/admin"
	"weir/dispatcher/ledger"
)

// TestPostingOfAResultBeyondTheSearch checks that a story calls a result gone only if the stream of results lacks it,
// and not if a bounded search has not reached it. Of a result that is gone, the story does not say that it was or was not
// posted, except that weir has given it up.
func TestPostingOfAResultBeyondTheSearch(t *testing.T) {
	t.Parallel()
	p := newPast(t)
	old, newer := p.result(1), p.result(2)
	p.call(2, ledger.Done, newer)
	p.call(1, ledger.Done, old)
	var says admin.PostingState
	stop, err := admin.StartService(admin.ServiceOptions{
		Conn: p.js.Conn(), Instance: "weir-0", Log: slog.New(slog.DiscardHandler),
		Posting: func(end admin.EndPlace) *admin.Posting {
			if end != (admin.EndPlace{API: "pay", Stream: ledger.ResultsStream, Seq: old}) {
				t.Errorf("asked for %+v", end)
			}
			return &admin.Posting{State: says}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	c := &connect.Connection{Conn: p.asks.Conn(), JetStream: p.asks, At: "the test's server", Denied: &connect.Denials{}}
	check := func(what string, wants map[admin.PostingState]admin.PostingState) {
		t.Helper()
		for of, want := range wants {
			says = of
			story, err := Find(t.Context(), c, Options{Job: "job-1", Search: true, Scan: 1, Posted: true})
			if err != nil || len(story.Jobs) != 1 || story.Jobs[0].Callback == nil {
				t.Fatalf("the story of a result that %s: %+v, %v", what, story, err)
			}
			if p := story.Jobs[0].Callback; p.State != want {
				t.Errorf("of a result that %s, a replica says %s and the story %s, want %s", what, of, p.State, want)
			}
		}
	}
	check("the search has not reached", map[admin.PostingState]admin.PostingState{
		admin.PostingWaits: admin.PostingWaits, admin.PostingTried: admin.PostingTried, admin.Posted: admin.Posted,
	})
	results, err := p.js.Stream(t.Context(), ledger.ResultsStream)
	if err == nil {
		err = results.DeleteMsg(t.Context(), old)
	}
	if err != nil {
		t.Fatal(err)
	}
	check("is gone", map[admin.PostingState]admin.PostingState{
		admin.PostingWaits: admin.PostingSettled, admin.PostingTried: admin.PostingSettled, admin.Posted: admin.PostingSettled,
		admin.PostingGivenUp: admin.PostingGivenUp, admin.PostingUnknown: admin.PostingUnknown, admin.PostingSettled: admin.PostingSettled,
	})
}
