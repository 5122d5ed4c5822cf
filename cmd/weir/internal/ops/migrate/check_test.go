package migrate

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestCopiesThatDiffer checks that a copy must have all messages, except those that have expired meanwhile.
func TestCopiesThatDiffer(t *testing.T) {
	was := jetstream.StreamState{Msgs: 10, FirstSeq: 5, LastSeq: 20}
	for name, c := range map[string]struct {
		is   jetstream.StreamState
		age  time.Duration
		same bool
	}{
		"the same":                        {was, 0, true},
		"a message less":                  {jetstream.StreamState{Msgs: 9, FirstSeq: 5, LastSeq: 20}, 0, false},
		"a message more":                  {jetstream.StreamState{Msgs: 11, FirstSeq: 5, LastSeq: 20}, time.Hour, false},
		"other sequences":                 {jetstream.StreamState{Msgs: 10, FirstSeq: 5, LastSeq: 21}, 0, false},
		"the first have gone":             {jetstream.StreamState{Msgs: 8, FirstSeq: 7, LastSeq: 20}, 0, false},
		"the first were too old":          {jetstream.StreamState{Msgs: 8, FirstSeq: 7, LastSeq: 20}, time.Hour, true},
		"the first were too old, and one": {jetstream.StreamState{Msgs: 7, FirstSeq: 7, LastSeq: 20}, time.Hour, false},
	} {
		source := &jetstream.StreamInfo{Config: jetstream.StreamConfig{MaxAge: c.age}, State: was}
		if why := differs(source, &jetstream.StreamInfo{State: c.is}); (why == "") != c.same {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// TestWhatKeepsAWorkerAway checks that the error says where the jobs are, and what to do.
func TestWhatKeepsAWorkerAway(t *testing.T) {
	n := note{From: "nats://old", To: "nats://new", Who: "me", At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	const under = "the jobs of this server are being moved to nats://new (by me, at 2026-01-02T03:04:05.000Z): finish the move with the same `weir move`, or cancel it with `weir move --abandon`"
	if got := n.away().Error(); got != under {
		t.Errorf("a move that is under way: %s", got)
	}
	n.Done = true
	const done = "the jobs of this server were moved to nats://new (by me, at 2026-01-02T03:04:05.000Z): start weir there, with WEIR_NATS_URL; what is here would be called a second time"
	if got := n.away().Error(); got != done {
		t.Errorf("a move that is done: %s", got)
	}
}
