package store

import (
	"strings"
	"testing"

	"weir/deadletter"

	"github.com/nats-io/nats.go/jetstream"
)

func RequireStatus(t *testing.T, letter *jetstream.RawStreamMsg, reason, status string) {
	t.Helper()
	if h := letter.Header; h.Get("Weir-Dead-Reason") != reason || h.Get("Weir-Dead-Status") != status {
		t.Errorf("a letter %s with status %s, want %s with %s", h.Get("Weir-Dead-Reason"), h.Get("Weir-Dead-Status"), reason, status)
	}
}

// LetterOf returns a letter's subject, body and headers. It leaves out the headers that differ between letters of equal
// jobs.
func (s Store) LetterOf(t *testing.T, seq uint64) map[string]string {
	t.Helper()
	in, err := s.JS.Stream(t.Context(), "WEIR_DEAD")
	if err != nil {
		t.Fatal(err)
	}
	msg, err := in.GetMsg(t.Context(), seq)
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{"subject": msg.Subject, "body": string(msg.Data)}
	for name, values := range msg.Header {
		switch name {
		case "Nats-Sequence", "Nats-Time-Stamp", "Weir-Job-Id", "Weir-Dead-At", "Weir-Dead-Accepted-At", "Nats-Msg-Id", "Content-Type":
		default:
			said[name] = strings.Join(values, ",")
		}
	}
	return said
}

// LetterCount returns the number of letters.
func (s Store) LetterCount() int {
	s.T.Helper()
	in, err := s.JS.Stream(s.T.Context(), deadletter.Stream)
	if err != nil {
		s.T.Fatal(err)
	}
	info, err := in.Info(s.T.Context(), jetstream.WithSubjectFilter("weir.dead.>"))
	if err != nil {
		s.T.Fatal(err)
	}
	return int(info.State.Msgs)
}
