package ingest_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"weir/ingest"
)

// TestUnsureIsSilence: a job of which nobody knows whether it is stored gets no answer, since either could be a lie, and
// no letter, since it may still be called. The next job is answered as ever.
func TestUnsureIsSilence(t *testing.T) {
	nc, kept, stop := intake()
	defer stop()
	answers, err := nc.SubscribeSync("answers.>")
	if err != nil {
		t.Fatal(err)
	}
	kept.says = &ingest.Refusal{Code: ingest.Unsure, Description: "nobody knows"}
	if err := nc.PublishRequest("weir.jobs.credit-check.k", "answers.unsure", nil); err != nil {
		t.Fatal(err)
	}
	if err := nc.PublishRequest("weir.jobs.credit-check", "answers.no-key", nil); err != nil {
		t.Fatal(err)
	}
	if msg, err := answers.NextMsg(nats.DefaultTimeout * 2); err != nil || msg.Subject != "answers.no-key" {
		t.Errorf("answered %v %v", msg, err)
	}
	if kept.refused.Key != "" || kept.refused.Refusal.Code != ingest.Invalid {
		t.Errorf("a letter was written: %+v", kept.refused)
	}
}

// TestUnavailableLeavesNoLetter: its producer tries again.
func TestUnavailableLeavesNoLetter(t *testing.T) {
	nc, kept, stop := intake()
	defer stop()
	kept.says = &ingest.Refusal{Code: ingest.Unavailable, Description: "no room"}
	_, err := ingest.NewClient(nc).Submit(t.Context(), ingest.Submission{API: "credit-check", Key: "k"})
	var refusal *ingest.Refusal
	if !errors.As(err, &refusal) || refusal.Code != ingest.Unavailable || refusal.LetterSeq != 0 || kept.refused.Refusal != nil {
		t.Errorf("%v, letter %+v", err, kept.refused)
	}
}
