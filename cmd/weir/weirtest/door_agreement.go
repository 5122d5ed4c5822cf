package weirtest

import (
	"strings"
	"testing"
)

// LetterOf returns a letter's subject, body and headers. It leaves out the headers that differ between letters of equal
// jobs.
func (r *Rig) LetterOf(t *testing.T, seq uint64) map[string]string {
	t.Helper()
	s, err := r.JS.Stream(t.Context(), "WEIR_DEAD")
	if err != nil {
		t.Fatal(err)
	}
	msg, err := s.GetMsg(t.Context(), seq)
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
