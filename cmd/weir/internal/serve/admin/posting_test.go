package admin

import (
	"testing"
	"time"
)

// TestPostingText checks that the sentence about an end that weir posts no more claims neither that the receiver has
// accepted it nor that weir has given it up, unless that is known.
func TestPostingText(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	for want, p := range map[string]Posting{
		"weir does not know any more whether it was posted":                                 {State: PostingSettled},
		"weir does not know whether it was posted: it is old":                               {State: PostingSettled, Why: "it is old"},
		"not known: the replica that was asked does not know how far the callback has come": {State: PostingUnknown},
		"posted: the receiver has accepted it":                                              {State: Posted},
		"given up at 2030-01-02T12:00:00.000Z: answered 422":                                {State: PostingGivenUp, GivenUpAt: at, Why: "answered 422"},
		"not posted: it was imported":                                                       {State: PostingNone, Why: "it was imported"},
		"waits to be posted; 1 other end is not posted yet":                                 {State: PostingWaits, Behind: 2},
	} {
		if text := p.Text(); text != want {
			t.Errorf("%+v: %q, want %q", p, text, want)
		}
	}
}
