package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/ingest/await"
	"weir/ingest/client"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
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

// TestManyShareMessages checks which jobs SubmitMany sends in one message, and what it returns: the answers in the order
// of the jobs, and after an error those before it.
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
		{"weir.jobs.a.k", "1", `{"jobs":[{"error":{"code":429,"err_code":20429,"description":"full"},"stream":"WEIR_a_0","seq":0,"retry_after_ms":5}]}`},
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
	if a := d.answers; a[0].Receipt.Seq != 1 || !errors.Is(a[1].Err, client.ErrNoAnswer) || !errors.As(a[2].Err, &refusal) ||
		refusal.RetryAfter != 5*time.Millisecond || !errors.Is(a[3].Err, nats.ErrMaxPayload) || a[4].Err == nil || a[5].Receipt.Seq != 3 {
		t.Errorf("answers %+v", a)
	}
	for i, j := range jobs {
		if j.ID == "" || i == 2 && j.ID != "3" {
			t.Errorf("job %d has the id %q", i, j.ID)
		}
	}
	impatient := client.New(s.nc, client.Options{AnswerWithin: 10 * time.Millisecond})
	if answers, err := impatient.SubmitMany(await.Context(t, "no answer"), jobs[5:]); !errors.Is(err, client.ErrNoAnswer) || len(answers) != 0 {
		t.Errorf("without an answer: %+v, %v", answers, err)
	}
	if err := s.sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.SubmitMany(t.Context(), jobs[5:6]); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("nobody there: %v", err)
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
	if _, err := client.ParseBatch([]byte(`{"stream":"ORDERS","seq":7}`), 1); !errors.As(err, &foreign) || foreign.Stream != "ORDERS" {
		t.Errorf("a stream: %v", err)
	}
	for _, answer := range []string{"", "{}", "null", "[]", `{"jobs":[]}`, `{"jobs":[null,null]}`, `{"stream":"WEIR_a_0","seq":7,"job":"1","key":"k"}`} {
		if answers, err := client.ParseBatch([]byte(answer), 1); err == nil {
			t.Errorf("%q passes for an answer: %+v", answer, answers)
		}
	}
	if answers, err := client.ParseBatch([]byte(`{"jobs":[{}]}`), 1); err != nil || answers[0].Err == nil {
		t.Errorf("%+v %v", answers, err)
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

// TestDoSendsAgain checks that Do sends a job whose answer was lost again under its id, with the trace of its caller,
// and that the job ends once.
func TestDoSendsAgain(t *testing.T) {
	t.Parallel()
	s := newFakeIntake(t)
	c := client.New(s.nc, client.Options{AnswerWithin: 20 * time.Millisecond, Inject: func(_ context.Context, h nats.Header) {
		h.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	}})
	end := make(chan client.End, 1)
	go func() {
		e, err := c.Do(await.Context(t, "the end"), client.Submission{API: "a", Key: "k", JobHeader: nats.Header{"X-Own": {"1"}}})
		if err != nil {
			t.Error(err)
		}
		end <- e
	}()
	first := await.Receive(t, "the job", s.jobs)
	again := await.Receive(t, "the job once more", s.jobs)
	if id := first.Header.Get("Nats-Msg-Id"); id == "" || again.Header.Get("Nats-Msg-Id") != id || again.Header.Get("X-Own") != "1" ||
		!strings.HasPrefix(again.Header.Get("Traceparent"), "00-0af7") {
		t.Errorf("sent again as %v", again.Header)
	}
	go s.acceptAll(t, 1) // until Do gets an answer in time
	told := nats.NewMsg(again.Header.Get("Weir-Reply-To"))
	told.Header = nats.Header{"Weir-Job-Id": {"x"}, "Weir-Outcome": {"overflow"}, "Weir-Dead-Reason": {"overflow"}}
	if err := s.nc.PublishMsg(told); err != nil { // a first try was refused, and its answer was lost
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Weir-Job-Id": "x", "Weir-Api": "a", "Weir-Outcome": "rejected", "Weir-Dead-Reason": "rejected", "Weir-Dead-Status": "422", "Weir-Dead-Billed": "yes",
	} {
		told.Header.Set(name, value)
	}
	if err := s.nc.PublishMsg(told); err != nil {
		t.Fatal(err)
	}
	if e := await.Receive(t, "the end", end); e.Done() || e.Outcome != "rejected" || e.Status != 422 || e.Billed != "yes" || e.Key != "k" {
		t.Errorf("ended as %+v", e)
	}
}

// TestDoOutlastsUnavailable checks that Do does not believe a 503 after a try without an answer: that try may have
// stored the job.
func TestDoOutlastsUnavailable(t *testing.T) {
	t.Parallel()
	s := newFakeIntake(t)
	c := client.New(s.nc, client.Options{AnswerWithin: 20 * time.Millisecond})
	end := make(chan client.End, 1)
	go func() {
		e, err := c.Do(await.Context(t, "the end"), client.Submission{API: "a", Key: "k"})
		if err != nil {
			t.Error(err)
		}
		end <- e
	}()
	first := await.Receive(t, "the job", s.jobs)
	stopping := client.Refusal{Code: client.Unavailable, Description: "weir is stopping: try again"}
	if err := await.Receive(t, "the job once more", s.jobs).Respond(stopping.Answer("", "", "", 0)); err != nil {
		t.Fatal(err)
	}
	go s.acceptAll(t, 1)
	told := nats.NewMsg(first.Header.Get("Weir-Reply-To"))
	told.Header = nats.Header{"Weir-Job-Id": {first.Header.Get("Nats-Msg-Id")}, "Weir-Outcome": {"done"}}
	if err := s.nc.PublishMsg(told); err != nil {
		t.Fatal(err)
	}
	if e := await.Receive(t, "the end", end); !e.Done() {
		t.Errorf("ended as %+v", e)
	}
}

// TestDoIsUnsureAfterSilence checks that the error of Do wraps ErrNoAnswer if a try had no answer and no later answer
// decides.
func TestDoIsUnsureAfterSilence(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		within  time.Duration
		later   func(*testing.T, *fakeIntake)
		refused bool
	}{
		{"no weir", 500 * time.Millisecond, func(t *testing.T, s *fakeIntake) {
			if err := errors.Join(s.sub.Unsubscribe(), s.nc.Flush()); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"refused", await.Patience, func(t *testing.T, s *fakeIntake) {
			full := client.Refusal{Code: client.Throttled, Description: "bucket full"}
			if err := await.Receive(t, "the job once more", s.jobs).Respond(full.Answer("", "", "", 0)); err != nil {
				t.Fatal(err)
			}
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newFakeIntake(t)
			ctx, cancel := context.WithTimeout(t.Context(), c.within)
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				_, err := client.New(s.nc, client.Options{AnswerWithin: 100 * time.Millisecond}).Do(ctx, client.Submission{API: "a", Key: "k"})
				ended <- err
			}()
			await.Receive(t, "the job", s.jobs)
			c.later(t, s)
			err := await.Receive(t, "the error", ended)
			var refusal *client.Refusal
			if !errors.Is(err, client.ErrNoAnswer) || errors.As(err, &refusal) != c.refused {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

// cable is a network connection that can be cut, and put back.
type cable struct {
	mu   sync.Mutex
	cut  bool
	open []net.Conn
}

func (c *cable) Dial(network, address string) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return nil, errors.New("the cable is cut")
	}
	conn, err := net.DialTimeout(network, address, await.Patience)
	c.open = append(c.open, conn)
	return conn, err
}

func (c *cable) pull(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut = cut; cut {
		for _, conn := range c.open {
			_ = conn.Close()
		}
		c.open = nil
	}
}

// TestDoTellsLivesApart checks that Do, after a reconnect, ignores older ends under the job's id: the letter of a
// refused submission, and the end of an earlier job.
func TestDoTellsLivesApart(t *testing.T) {
	t.Parallel()
	ctx := await.Context(t, "the end")
	s := newFakeIntake(t)
	js, err := jetstream.New(s.nc)
	if err != nil {
		t.Fatal(err)
	}
	streams := map[string]jetstream.Stream{}
	for name, subject := range map[string]string{"WEIR_RESULTS": "weir.results.>", "WEIR_DEAD": "weir.dead.>"} {
		if streams[name], err = js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{subject}}); err != nil {
			t.Fatal(err)
		}
	}
	store := func(subject, id string, h nats.Header) {
		h.Set("Nats-Msg-Id", id)
		h.Set("Weir-Job-Id", "order-9")
		if _, err := js.PublishMsg(ctx, &nats.Msg{Subject: subject, Header: h}); err != nil {
			t.Fatal(err)
		}
	}
	store("weir.dead.a.overflow.k", "letter.x", nats.Header{"Weir-Dead-Reason": {"overflow"}})
	store("weir.dead.a.rejected.k", "letter.WEIR_a_0.6.1", nats.Header{"Weir-Dead-Reason": {"rejected"}})
	store("weir.results.a.k", "result.WEIR_a_0.5.1", nats.Header{"Weir-Outcome": {"done"}})
	line := &cable{}
	nc, err := nats.Connect(s.nc.ConnectedUrl(), nats.SetCustomDialer(line), nats.ReconnectWait(10*time.Millisecond), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	done := make(chan client.End, 1)
	go func() {
		end, err := client.New(nc, client.Options{AnswerWithin: time.Second}).Do(ctx, client.Submission{API: "a", Key: "k", ID: "order-9"})
		if err != nil {
			t.Error(err)
		}
		done <- end
	}()
	if err := acceptAt(await.Receive(t, "the job", s.jobs), 7); err != nil {
		t.Fatal(err)
	}
	if err := s.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	go s.acceptAll(t, 7) // in case the receipt is lost
	line.pull(true)
	line.pull(false)
	for name, stream := range streams {
		await.Until(t, "reading of "+name, func() bool {
			read := len(done) > 0
			for c := range stream.ListConsumers(ctx).Info() {
				read = read || c.NumPending == 0
			}
			return read
		})
	}
	// The job is done after a redrive.
	store("weir.results.a.k", "found.WEIR_a_0.8.1", nats.Header{"Weir-Outcome": {"done"}, "Weir-Status": {"201"}})
	if end := await.Receive(t, "the end", done); end.Status != 201 {
		t.Errorf("ended as %+v", end)
	}
}

// TestDoSearchesAgain checks that Do, after a reconnect, finds an end even if the streams could not be read at first.
func TestDoSearchesAgain(t *testing.T) {
	t.Parallel()
	ctx := await.Context(t, "the end")
	s := newFakeIntake(t)
	js, err := jetstream.New(s.nc)
	if err != nil {
		t.Fatal(err)
	}
	tried, err := s.nc.SubscribeSync("$JS.API.CONSUMER.CREATE.>")
	if err != nil {
		t.Fatal(err)
	}
	line := &cable{}
	nc, err := nats.Connect(s.nc.ConnectedUrl(), nats.SetCustomDialer(line), nats.ReconnectWait(10*time.Millisecond), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	done := make(chan client.End, 1)
	go func() {
		end, err := client.New(nc, client.Options{AnswerWithin: time.Second}).Do(ctx, client.Submission{API: "a", Key: "k", ID: "order-9"})
		if err != nil {
			t.Error(err)
		}
		done <- end
	}()
	if err := acceptAt(await.Receive(t, "the job", s.jobs), 7); err != nil {
		t.Fatal(err)
	}
	if err := s.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	go s.acceptAll(t, 7) // in case the receipt is lost
	line.pull(true)
	line.pull(false)
	if _, err := tried.NextMsgWithContext(ctx); err != nil { // there are no streams
		t.Fatal(err)
	}
	for name, subject := range map[string]string{"WEIR_RESULTS": "weir.results.>", "WEIR_DEAD": "weir.dead.>"} {
		if _, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{subject}}); err != nil {
			t.Fatal(err)
		}
	}
	result := &nats.Msg{Subject: "weir.results.a.k", Header: nats.Header{
		"Nats-Msg-Id": {"result.WEIR_a_0.7.1"}, "Weir-Job-Id": {"order-9"}, "Weir-Outcome": {"done"}, "Weir-Status": {"201"},
	}}
	if _, err := js.PublishMsg(ctx, result); err != nil {
		t.Fatal(err)
	}
	if end := await.Receive(t, "the end", done); end.Status != 201 {
		t.Errorf("ended as %+v", end)
	}
}

// TestDoAfterAReconnect checks, with a real weir, that Do finds an end in the stream that weir sent while the
// connection was down. Await finds the end of a job that an earlier process submitted.
func TestDoAfterAReconnect(t *testing.T) {
	url := weirURL() // before the context, because building weir takes long
	ctx := await.Context(t, "the end")
	line := &cable{}
	nc, err := nats.Connect(url, nats.SetCustomDialer(line), nats.ReconnectWait(10*time.Millisecond), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	watching, err := nats.Connect(url, nats.Timeout(await.Patience))
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Close()
	ends, err := watching.SubscribeSync("weir.results.credit-check.cut-off")
	if err != nil {
		t.Fatal(err)
	}
	if err := watching.Flush(); err != nil {
		t.Fatal(err)
	}
	c := client.New(nc, client.Options{})
	job := client.Submission{API: "credit-check", Key: "cut-off", ID: "order-7", Path: "/held"}
	done := make(chan client.End, 1)
	go func() {
		end, err := c.Do(ctx, job)
		if err != nil {
			t.Error(err)
		}
		done <- end
	}()
	await.Receive(t, "the call", paidAPI.began)
	line.pull(true)
	close(paidAPI.free)
	if _, err := ends.NextMsgWithContext(ctx); err != nil {
		t.Fatal(err)
	}
	line.pull(false)
	if end := await.Receive(t, "the end", done); !end.Done() || end.Job != "order-7" || !strings.HasPrefix(string(end.Body), "answer to /held") {
		t.Errorf("ended as %+v", end)
	}
	again, err := client.New(watching, client.Options{}).Do(ctx, job)
	if err != nil || again.Job != "order-7" || again.Finished.IsZero() || again.Attempts != 1 {
		t.Errorf("handed in again it ended as %+v: %v", again, err)
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
