package weirtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Gauge waits until a metric of the api pay has exactly this value.
func (r *Rig) Gauge(name string, want float64) {
	r.T.Helper()
	line := fmt.Sprintf("\n%s{api=\"pay\"} %v\n", name, want)
	r.Eventually("the metric"+line, func() bool { return strings.Contains(r.Get("/metrics"), line) })
}

// HoldEvents waits for hold and resume events, and fails unless their subjects are want.
func (r *Rig) HoldEvents(want ...string) {
	r.T.Helper()
	of := func() (subjects []string) {
		for _, m := range append(r.Stored("WEIR_EVENTS", "weir.events.held.pay.*"), r.Stored("WEIR_EVENTS", "weir.events.resumed.pay.*")...) {
			subjects = append(subjects, m.Subject)
		}
		return subjects
	}
	r.Eventually(fmt.Sprint("the events ", want), func() bool { return len(of()) >= len(want) })
	if got := of(); !slices.Equal(got, want) {
		r.T.Errorf("the events of holds are %v, want %v", got, want)
	}
}

// SendUntil submits a job with a deadline. It returns a subscription that receives the job's end.
func (r *Rig) SendUntil(key, id, deadline string) *nats.Subscription {
	r.T.Helper()
	inbox := "_INBOX.end." + id
	ends, err := r.NC.SubscribeSync(inbox)
	if err != nil {
		r.T.Fatal(err)
	}
	r.Send("pay", key, nats.Header{
		"Nats-Msg-Id": {id}, "Weir-Path": {"/" + key}, "Weir-Deadline": {deadline}, "Weir-Reply-To": {inbox},
	}, id)
	return ends
}

// RequireExpired waits for a job's end and fails unless the job has expired and has a letter.
func (r *Rig) RequireExpired(ends *nats.Subscription, key, status string) {
	r.T.Helper()
	end, err := ends.NextMsg(Patience)
	if err != nil {
		r.T.Fatalf("the job's end is not told: %v", err)
	}
	letters := r.Letters("pay", key)
	if end.Header.Get("Weir-Outcome") != "expired" || len(letters) == 0 {
		r.T.Fatalf("the end is told as %v; %d letters", end.Header, len(letters))
	}
	last := letters[len(letters)-1]
	RequireStatus(r.T, last, "expired", status)
	if got := last.Header.Get("Weir-Dead-Detail"); !strings.HasPrefix(got, "the deadline passed before its call; it had waited ") {
		r.T.Errorf("the letter of a job that waited says: %s", got)
	}
}

func RequireStatus(t *testing.T, letter *jetstream.RawStreamMsg, reason, status string) {
	t.Helper()
	if h := letter.Header; h.Get("Weir-Dead-Reason") != reason || h.Get("Weir-Dead-Status") != status {
		t.Errorf("a letter %s with status %s, want %s with %s", h.Get("Weir-Dead-Reason"), h.Get("Weir-Dead-Status"), reason, status)
	}
}
