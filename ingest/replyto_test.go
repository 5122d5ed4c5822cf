package ingest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"weir/ingest"
)

// TestReplySubjects checks that a job may name only two kinds of reply subject: an inbox of producers, and a subject
// that the configuration opens.
func TestReplySubjects(t *testing.T) {
	for _, c := range []struct {
		open, inbox, subject string
		ok                   bool
	}{
		{"", "", "_INBOX.abc.1", true},
		{"", "", "_INBOX.producer.abc", true},
		{"", "", "_INBOX.workers.abc", true},
		{"", "", "_INBOX.operator.abc.1", false},
		{"", "", ingest.EndsInbox("_INBOX.operator.abc"), true},
		{"", "", "_INBOX.operator.endsabc.1", false},
		{"", "", "_INBOX.worker.abc", false},
		{"", "", "_INBOX.viewer.abc", false},
		{"", "", "_INBOX.mover.abc", false},
		{"", "_INBOX.weir-7", "_INBOX.weir-7.abc", false},
		{"", "_INBOX.weir-7", "_INBOX.weir-70.abc", true},
		{"", "_INBOX", "_INBOX.abc", true},
		{"", "", "_INBOX", false},
		{"", "", "reports", false},
		{"", "", "orders.created", false},
		{"_INBOX.> reports.*.done", "", "reports.7.done", true},
		{"_INBOX.> reports.*.done", "", "reports.7.done.x", false},
		{"_INBOX.> reports.*.done", "", "reports.7", false},
		{"_INBOX.> reports.*.done", "", "_INBOX.abc", true},
		{"_INBOX.> reports.*.done", "", "_INBOX.operator.abc", false},
		{"reports.>", "", "_INBOX.abc", false},
		{"reports.>", "", "reports", false},
		{"_INBOX.*.x", "", "_INBOX.operator.x", false},
		{"_INBOX.operator.>", "", "_INBOX.operator.abc", true},
	} {
		rule := &ingest.Rule{API: "credit", Methods: []string{"POST"}, MaxBody: 100, ReplyTo: ingest.ReplySubjects{Open: strings.Fields(c.open), Inbox: c.inbox}}
		for _, redrive := range []bool{false, true} {
			m := ingest.Message{Key: "k", Header: nats.Header{"Weir-Reply-To": {c.subject}}, Redrive: redrive}
			j, refusal := ingest.Parse(m, rule, time.Now())
			if (refusal == nil) != c.ok || (j.ReplyTo == c.subject) != c.ok {
				t.Errorf("%s, where %q is open and %q weir's own: told on %q, %v", c.subject, c.open, c.inbox, j.ReplyTo, refusal)
			}
		}
		if back, refusal := ingest.Restore(ingest.Message{Key: "k", Header: nats.Header{"Weir-Reply-To": {c.subject}}}, rule, time.Now()); refusal != nil || back.ReplyTo != c.subject {
			t.Errorf("%s: a job that was taken with it is told nothing: %v", c.subject, refusal)
		}
	}
}
