package client_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"weir/ingest/await"
	"weir/ingest/client"

	"github.com/nats-io/nats.go"
)

// TestManyShareMessages checks which jobs SubmitMany sends in one message, and what it returns: the answers in the
// order of the jobs, and after an error those before it.
func TestManyShareMessages(t *testing.T) {
	t.Parallel()
	s := newFakeIntake(t)
	c := client.New(s.nc, client.Options{AnswerWithin: await.Patience})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	large := make([]byte, 400<<10)
	jobs := []client.Submission{
		{API: "a", Key: "k", Body: large},
		{API: "a", Key: "l", Body: large},
		{API: "a", Key: "k", Body: large, ID: "3"},
		{API: "a", Body: make([]byte, 2<<20)},
		{API: "a", JobHeader: nats.Header{"a b": {"1"}}},
		{API: "b"},
		{API: "a"},
		{API: "a"},
	}
	type answered struct {
		answers []client.Answer
		err     error
	}
	done := make(chan answered, 1)
	go func() {
		answers, err := c.SubmitMany(ctx, jobs)
		done <- answered{answers, err}
	}()
	for _, want := range []struct{ subject, jobs, answer string }{
		{"weir.jobs.a._", "2", `{"jobs":[{"stream":"WEIR_a_0","seq":1,"job":"1","key":"k","position":1},null]}`},
		{
			"weir.jobs.a.k", "1",
			`{"jobs":[{"error":{"code":429,"err_code":20429,"description":"full"},"stream":"WEIR_a_0","seq":0,"retry_after_ms":5}]}`,
		},
		{"weir.jobs.b", "1", `{"jobs":[{"stream":"WEIR_b_0","seq":3,"job":"1","key":"k","position":1}]}`},
		{"weir.jobs.a", "2", ""},
	} {
		msg := await.Receive(t, "a batch", s.jobs)
		if n := msg.Header.Get("Weir-Batch"); msg.Subject != want.subject || n != want.jobs || msg.Size() > 1<<20 {
			t.Errorf("%s jobs came on %s, want %s on %s", n, msg.Subject, want.jobs, want.subject)
		}
		if want.answer == "" {
			cancel()
		} else if err := msg.Respond([]byte(want.answer)); err != nil {
			t.Fatal(err)
		}
	}
	d := await.Receive(t, "the answers", done)
	if !errors.Is(d.err, context.Canceled) || len(d.answers) != 6 {
		t.Fatalf("%d answers, %v", len(d.answers), d.err)
	}
	var refusal *client.Refusal
	if a := d.answers; a[0].Receipt.Seq != 1 || !errors.Is(a[1].Err, client.ErrNoAnswer) ||
		!errors.As(a[2].Err, &refusal) || refusal.RetryAfter != 5*time.Millisecond ||
		!errors.Is(a[3].Err, nats.ErrMaxPayload) || a[4].Err == nil || a[5].Receipt.Seq != 3 {
		t.Errorf("answers %+v", a)
	}
	for i, j := range jobs {
		if j.ID == "" || i == 2 && j.ID != "3" {
			t.Errorf("job %d has the id %q", i, j.ID)
		}
	}
	impatient := client.New(s.nc, client.Options{AnswerWithin: 10 * time.Millisecond})
	unanswered, err := impatient.SubmitMany(await.Context(t, "no answer"), jobs[5:])
	if !errors.Is(err, client.ErrNoAnswer) || len(unanswered) != 0 {
		t.Errorf("without an answer: %+v, %v", unanswered, err)
	}
	if err := s.sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.SubmitMany(t.Context(), jobs[5:6]); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("nobody there: %v", err)
	}
}

// TestNotConnectedYet checks that a client whose connection was never established fails as a whole and says so.
func TestNotConnectedYet(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // answers nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	nc, err := nats.Connect("nats://"+l.Addr().String(), nats.RetryOnFailedConnect(true), nats.Timeout(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c, job := client.New(nc, client.Options{}), client.Submission{API: "a"}
	answers, many := c.SubmitMany(t.Context(), []client.Submission{job, job})
	_, one := c.Submit(t.Context(), job)
	_, async := c.SubmitAsync(t.Context(), job)
	for name, err := range map[string]error{"SubmitMany": many, "Submit": one, "SubmitAsync": async} {
		if !errors.Is(err, nats.ErrDisconnected) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(answers) != 0 {
		t.Errorf("answers without a connection: %+v", answers)
	}
}

// TestManyOfOthers checks that SubmitMany believes only weir's answer about all jobs of a batch.
func TestManyOfOthers(t *testing.T) {
	t.Parallel()
	var refusal *client.Refusal
	if _, err := client.ParseBatch([]byte(`{"error":{"code":400,"err_code":20400,"description":"batch: it is cut"},"stream":"","seq":0}`), 1); !errors.As(err, &refusal) || refusal.Code != client.Invalid {
		t.Errorf("refused as a whole: %v", err)
	}
	var foreign *client.ForeignAnswer
	if _, err := client.ParseBatch([]byte(`{"stream":"ORDERS","seq":7}`), 1); !errors.As(err, &foreign) ||
		foreign.Stream != "ORDERS" {
		t.Errorf("a stream: %v", err)
	}
	for _, answer := range []string{
		"", "{}", "null", "[]", `{"jobs":[]}`, `{"jobs":[null,null]}`,
		`{"stream":"WEIR_a_0","seq":7,"job":"1","key":"k"}`,
	} {
		if answers, err := client.ParseBatch([]byte(answer), 1); err == nil {
			t.Errorf("%q passes for an answer: %+v", answer, answers)
		}
	}
	if answers, err := client.ParseBatch([]byte(`{"jobs":[{}]}`), 1); err != nil || answers[0].Err == nil {
		t.Errorf("%+v %v", answers, err)
	}
}
