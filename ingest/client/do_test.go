package client_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/ingest/await"
	"weir/ingest/client"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestDoSendsAgain checks that Do sends a job whose answer was lost again under its id, with the trace of its caller,
// and that the job ends once.
func TestDoSendsAgain(t *testing.T) {
	t.Parallel()
	s := newFakeIntake(t)
	c := client.New(s.nc, client.Options{
		AnswerWithin: 20 * time.Millisecond,
		Inject: func(_ context.Context, h nats.Header) {
			h.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		},
	})
	end := make(chan client.End, 1)
	go func() {
		e, err := c.Do(await.Context(t, "the end"), client.Submission{
			API:       "a",
			Key:       "k",
			JobHeader: nats.Header{"X-Own": {"1"}},
		})
		if err != nil {
			t.Error(err)
		}
		end <- e
	}()
	first := await.Receive(t, "the job", s.jobs)
	again := await.Receive(t, "the job once more", s.jobs)
	if id := first.Header.Get("Nats-Msg-Id"); id == "" || again.Header.Get("Nats-Msg-Id") != id ||
		again.Header.Get("X-Own") != "1" ||
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
		"Weir-Job-Id":      "x",
		"Weir-Api":         "a",
		"Weir-Outcome":     "rejected",
		"Weir-Dead-Reason": "rejected",
		"Weir-Dead-Status": "422",
		"Weir-Dead-Billed": "yes",
	} {
		told.Header.Set(name, value)
	}
	if err := s.nc.PublishMsg(told); err != nil {
		t.Fatal(err)
	}
	if e := await.Receive(t, "the end", end); e.Done() || e.Outcome != "rejected" || e.Status != 422 ||
		e.Billed != "yes" || e.Key != "k" {
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
				_, err := client.New(s.nc, client.Options{AnswerWithin: 100 * time.Millisecond}).Do(ctx, client.Submission{
					API: "a",
					Key: "k",
				})
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
		if streams[name], err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name:     name,
			Subjects: []string{subject},
		}); err != nil {
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
	nc, err := nats.Connect(s.nc.ConnectedUrl(), nats.SetCustomDialer(line), nats.ReconnectWait(10*time.Millisecond),
		nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	done := make(chan client.End, 1)
	go func() {
		end, err := client.New(nc, client.Options{AnswerWithin: time.Second}).Do(ctx, client.Submission{
			API: "a",
			Key: "k",
			ID:  "order-9",
		})
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
	nc, err := nats.Connect(s.nc.ConnectedUrl(), nats.SetCustomDialer(line), nats.ReconnectWait(10*time.Millisecond),
		nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	done := make(chan client.End, 1)
	go func() {
		end, err := client.New(nc, client.Options{AnswerWithin: time.Second}).Do(ctx, client.Submission{
			API: "a",
			Key: "k",
			ID:  "order-9",
		})
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
	nc, err := nats.Connect(url, nats.SetCustomDialer(line), nats.ReconnectWait(10*time.Millisecond),
		nats.MaxReconnects(-1))
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
	if end := await.Receive(t, "the end", done); !end.Done() || end.Job != "order-7" ||
		!strings.HasPrefix(string(end.Body), "answer to /held") {
		t.Errorf("ended as %+v", end)
	}
	again, err := client.New(watching, client.Options{}).Do(ctx, job)
	if err != nil || again.Job != "order-7" || again.Finished.IsZero() || again.Attempts != 1 {
		t.Errorf("handed in again it ended as %+v: %v", again, err)
	}
}
