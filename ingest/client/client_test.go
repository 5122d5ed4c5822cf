package client_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"weir/ingest/await"
	"weir/ingest/client"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// TestNothingOfAServer checks that a producer links the NATS client and a library for ids, and no package that only a
// server needs.
func TestNothingOfAServer(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(await.Build(t), "go", "list", "-deps", "weir/ingest/client").Output()
	if err != nil {
		t.Fatal(err)
	}
	allowed := []string{
		"weir/ingest/client", "github.com/nats-io/nats.go", "github.com/nats-io/nkeys", "github.com/nats-io/nuid", "github.com/google/uuid",
		"github.com/klauspost/compress/", "golang.org/x/crypto/", "golang.org/x/sys/", "golang.org/x/text/", "vendor/golang.org/",
	}
	for path := range strings.FieldsSeq(string(out)) {
		first, _, _ := strings.Cut(path, "/")
		known := !strings.Contains(first, ".") && first != "weir"
		for _, prefix := range allowed {
			known = known || strings.HasPrefix(path, prefix)
		}
		if !known {
			t.Errorf("the package links %s", path)
		}
	}
}

// fakeIntake answers when the test lets it. It has a server of its own.
type fakeIntake struct {
	nc   *nats.Conn
	jobs chan *nats.Msg
	sub  *nats.Subscription
}

func newFakeIntake(t *testing.T) *fakeIntake {
	t.Helper()
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(await.Patience) {
		t.Fatal("the nats-server did not start")
	}
	nc, err := nats.Connect(ns.ClientURL(), nats.Timeout(await.Patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	s := &fakeIntake{nc: nc, jobs: make(chan *nats.Msg, 100)}
	if s.sub, err = nc.ChanSubscribe("weir.jobs.>", s.jobs); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil { // else a job of another connection may come before the subscription
		t.Fatal(err)
	}
	return s
}

func acceptAt(msg *nats.Msg, seq int) error {
	return msg.Respond(fmt.Appendf(nil, `{"stream":"WEIR_a_0","seq":%d,"job":%q,"key":"k","position":1}`, seq, msg.Header.Get("Nats-Msg-Id")))
}

// acceptAll accepts every job at the same sequence, until the test ends.
func (s *fakeIntake) acceptAll(t *testing.T, seq int) {
	for {
		select {
		case msg := <-s.jobs:
			_ = acceptAt(msg, seq)
		case <-t.Context().Done():
			return
		}
	}
}

// TestAsyncIsBounded checks that SubmitAsync sends jobs in the order of its calls, and that no more jobs than allowed
// have no answer. An answer, or a timeout, makes room for another job.
func TestAsyncIsBounded(t *testing.T) {
	t.Parallel()
	s := newFakeIntake(t)
	c := client.New(s.nc, client.Options{UnderWay: 3})
	submit := func(ctx context.Context, n int) (*client.Pending, error) {
		return c.SubmitAsync(ctx, client.Submission{API: "a", Key: "k", ID: fmt.Sprint("job-", n)})
	}
	var sent []*client.Pending
	for n := range 3 {
		p, err := submit(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		sent = append(sent, p)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := submit(ended, 3); !errors.Is(err, context.Canceled) {
		t.Fatalf("a fourth job was sent: %v", err)
	}
	for n := range 3 {
		msg := await.Receive(t, "a job", s.jobs)
		if id := msg.Header.Get("Nats-Msg-Id"); id != fmt.Sprint("job-", n) {
			t.Errorf("%s came as number %d", id, n)
		}
		if err := acceptAt(msg, 1); err != nil {
			t.Fatal(err)
		}
	}
	for n, p := range sent {
		if receipt, err := p.Wait(await.Context(t, "an answer")); err != nil || receipt.Job != fmt.Sprint("job-", n) || p.Job.ID != receipt.Job {
			t.Errorf("job %d: %+v %v", n, receipt, err)
		}
	}
	p, err := submit(await.Context(t, "room"), 4)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := p.Wait(await.Context(t, "the end")); !errors.Is(err, client.ErrNoAnswer) || !errors.Is(err, client.ErrClosed) {
		t.Errorf("a job without an answer ends with %v when the client is closed", err)
	}
	if _, err := submit(t.Context(), 5); !errors.Is(err, client.ErrClosed) {
		t.Errorf("a closed client: %v", err)
	}
}

// TestNoAnswer checks the errors of a submission: without an answer the job may have been accepted; without a
// subscriber the server says so.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	s := newFakeIntake(t)
	c := client.New(s.nc, client.Options{AnswerWithin: 10 * time.Millisecond})
	ctx := await.Context(t, "answers")
	p, err := c.SubmitAsync(ctx, client.Submission{API: "a", Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(ctx); !errors.Is(err, client.ErrNoAnswer) || p.Job.ID == "" {
		t.Errorf("async: %v, job %+v", err, p.Job)
	}
	if _, err := c.Submit(t.Context(), client.Submission{API: "a", Key: "k"}); !errors.Is(err, client.ErrNoAnswer) {
		t.Errorf("sync: %v", err)
	}
	if err := c.Flush(ctx); err != nil {
		t.Error(err)
	}
	nobody, err := nats.Connect(weirless(t), nats.Timeout(await.Patience))
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	c = client.New(nobody, client.Options{})
	if p, err = c.SubmitAsync(ctx, client.Submission{API: "a", Key: "k"}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(ctx); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("async, nobody there: %v", err)
	}
	if _, err := c.Do(ctx, client.Submission{API: "a", Key: "k"}); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("do, nobody there: %v", err)
	}
}

// TestEndsOfLetters checks that Await finds a dead letter as well as a result.
func TestEndsOfLetters(t *testing.T) {
	url := weirURL()
	ctx := await.Context(t, "the end")
	nc, err := nats.Connect(url, nats.Timeout(await.Patience))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c := client.New(nc, client.Options{})
	if _, err := c.Submit(ctx, client.Submission{API: "credit-check", Key: "late", ID: "order-8", Path: "x y"}); err == nil {
		t.Fatal("a path with a blank was taken")
	}
	end, err := c.Await(ctx, "credit-check", "late", "order-8", time.Now().Add(-time.Hour))
	if err != nil || end.Done() || end.Outcome != "invalid" || end.Detail == "" || end.Billed != "no" || end.Body != nil || end.Finished.IsZero() {
		t.Errorf("ended as %+v: %v", end, err)
	}
}

// weirless starts a server without an intake.
func weirless(t *testing.T) string {
	t.Helper()
	s := newFakeIntake(t)
	url := s.nc.ConnectedUrl()
	s.nc.Close()
	return url
}
