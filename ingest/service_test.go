package ingest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"weir/ingest"
)

// TestUnsureIsSilence checks a job that may or may not be stored: it gets no answer, because either answer could be
// false, and no letter, because it may still be called. The next job is answered normally.
func TestUnsureIsSilence(t *testing.T) {
	nc, kept, stop := intake()
	defer stop()
	answers, err := nc.SubscribeSync("answers.>")
	if err != nil {
		t.Fatal(err)
	}
	kept.says = &ingest.Refusal{Code: ingest.Unsure, Description: "the stream did not confirm the job"}
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

// TestUnavailableLeavesNoLetter checks that a refusal with 503 leaves no letter, because the producer tries again.
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

// TestThrottledButTriesAgain checks that a throttled job leaves no letter if its producer says that it will submit the
// job again, because the letter would contradict the job's later end. Every other refusal of such a job leaves a
// letter, and so does each refusal of any other job.
func TestThrottledButTriesAgain(t *testing.T) {
	nc, kept, stop := intake()
	defer stop()
	client := ingest.NewClient(nc)
	submit := func(s ingest.Submission) *ingest.Refusal {
		t.Helper()
		kept.refused = ingest.Refused{}
		s.API, s.Key = "credit-check", "k"
		_, err := client.Submit(t.Context(), s)
		var refusal *ingest.Refusal
		if !errors.As(err, &refusal) {
			t.Fatalf("%v", err)
		}
		return refusal
	}
	kept.says = &ingest.Refusal{Code: ingest.Throttled, Description: "bucket full", RetryAfter: time.Second}
	if r := submit(ingest.Submission{Retries: true}); r.Code != ingest.Throttled || r.RetryAfter != time.Second || r.LetterSeq != 0 || kept.refused.Refusal != nil {
		t.Errorf("%+v, letter %+v", r, kept.refused)
	}
	if r := submit(ingest.Submission{}); r.LetterSeq == 0 || kept.refused.Refusal == nil {
		t.Errorf("%+v, letter %+v", r, kept.refused)
	}
	if r := submit(ingest.Submission{Retries: true, Method: "TRACE"}); r.Code != ingest.Invalid || r.LetterSeq == 0 {
		t.Errorf("%+v, letter %+v", r, kept.refused)
	}
	if r := submit(ingest.Submission{JobHeader: nats.Header{"Weir-On-Throttled": {"wait"}}}); r.Code != ingest.Invalid || r.LetterSeq == 0 {
		t.Errorf("%+v, letter %+v", r, kept.refused)
	}
}
