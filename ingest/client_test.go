package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"weir/ingest"
	"weir/ingest/await"
)

// drawer is a minimal queue: it keeps up to two jobs of each key.
type drawer struct {
	mu      sync.Mutex
	jobs    map[string][]*ingest.Job
	burying sync.Mutex      // guards writes of refused, because Put calls done with mu locked
	refused ingest.Refused  // the newest
	says    *ingest.Refusal // the answer to every job, unless nil
	later   bool            // Put answers after it has returned
}

func (d *drawer) Put(j *ingest.Job, done func(ingest.Receipt, *ingest.Refusal)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.later {
		given := done
		done = func(r ingest.Receipt, refusal *ingest.Refusal) { go given(r, refusal) }
	}
	if d.says != nil {
		done(ingest.Receipt{}, d.says)
		return
	}
	if n := len(d.jobs[j.Key]); n == 2 {
		done(ingest.Receipt{}, &ingest.Refusal{
			Code: ingest.Throttled, Description: "bucket full: " + j.API + "/" + j.Key + " holds 2 of 2", RetryAfter: 1500 * time.Millisecond,
		})
		return
	}
	d.jobs[j.Key] = append(d.jobs[j.Key], j)
	done(ingest.Receipt{
		Stream: d.Stream(j.Key), Seq: uint64(len(d.jobs[j.Key])), Job: j.ID, Key: j.Key, Position: len(d.jobs[j.Key]),
		ETA: time.Date(2030, 1, 2, 3, 4, 5, 678_000_000, time.UTC),
	}, nil)
}

func (d *drawer) Stream(string) string { return "WEIR_credit-check_0" }

// intake starts a nats-server, and the real intake with a drawer as its queue.
func intake() (nc *nats.Conn, kept *drawer, stop func()) {
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	if err != nil {
		panic(err)
	}
	ns.Start()
	if !ns.ReadyForConnections(90 * time.Second) {
		panic("the nats-server did not start")
	}
	if nc, err = nats.Connect(ns.ClientURL(), nats.Timeout(await.Patience)); err != nil {
		panic(err)
	}
	kept = &drawer{jobs: map[string][]*ingest.Job{}}
	apis := map[string]*ingest.API{"credit-check": {Queue: kept, Rule: &ingest.Rule{
		API: "credit-check", Methods: []string{"POST"}, ForwardHeaders: []string{"X-Source", "Content-Type"}, MaxBody: 64,
	}}}
	service, err := ingest.Start(ingest.Options{
		Conn: nc, Version: "0.0.0", APIs: func() map[string]*ingest.API { return apis }, Log: slog.New(slog.DiscardHandler),
		Bury: func(r ingest.Refused, done func(uint64, error)) {
			kept.burying.Lock()
			kept.refused = r
			kept.burying.Unlock()
			done(55, nil)
		},
	})
	if err != nil {
		panic(err)
	}
	return nc, kept, func() {
		if err := service.Stop(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		nc.Close()
		ns.Shutdown()
		ns.WaitForShutdown()
	}
}

func ExampleClient_Submit() {
	nc, _, stop := intake() // a server on which a weir runs
	defer stop()
	client := ingest.NewClient(nc)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()

	for _, order := range []string{"order-1", "order-2", "order-3"} {
		receipt, err := client.Submit(ctx, ingest.Submission{
			API: "credit-check", Key: "vip-1", ID: order, Body: []byte(`{"order":"` + order + `"}`),
		})
		var refusal *ingest.Refusal
		switch {
		case errors.As(err, &refusal) && refusal.Code == ingest.Throttled:
			fmt.Printf("%s: %s; try again in %s\n", order, refusal.Description, refusal.RetryAfter)
		case err != nil:
			fmt.Println("submit again under the same id:", err)
		default:
			fmt.Printf("%s: stored at position %d\n", receipt.Job, receipt.Position)
		}
	}
	// Output:
	// order-1: stored at position 1
	// order-2: stored at position 2
	// order-3: bucket full: credit-check/vip-1 holds 2 of 2; try again in 1.5s
}

// TestClientKeepsKeysAndHeaders checks that the intake gets every field of a submission unchanged, even keys that no
// subject can hold.
func TestClientKeepsKeysAndHeaders(t *testing.T) {
	nc, kept, stop := intake()
	defer stop()
	client := ingest.NewClient(nc)
	for _, key := range []string{
		"vip-1", "tenant.42", "a b", "*", ">", "a.>", "_", "%", "%41", "%5F", "..", "ü/ß", "\t\n\x00", strings.Repeat("é", 64),
	} {
		receipt, err := client.Submit(t.Context(), ingest.Submission{API: "credit-check", Key: key})
		if err != nil || receipt.Key != key || receipt.Job == "" || receipt.ETA.UnixMilli() != 1893553445678 {
			t.Errorf("key %q: receipt %+v, error %v", key, receipt, err)
		}
	}
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	_, err := client.Submit(t.Context(), ingest.Submission{
		API: "credit-check", Key: "full", ID: "one", Method: "POST", Path: "/a", Query: "b=c", Body: []byte("body"), Cost: 3,
		Deadline: at, ReplyTo: "_INBOX.results", JobHeader: nats.Header{"X-Own": {"1"}},
		Header: []ingest.HeaderField{{Name: "X-Source", Value: "a"}, {Name: "x-source", Value: "b"}, {Name: "content-type", Value: "text/plain"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	j := kept.jobs["full"][0]
	if j.ID != "one" || j.Path != "/a" || j.Query != "b=c" || string(j.Body) != "body" || j.Cost != 3 || !j.Deadline.Equal(at) ||
		j.ReplyTo != "_INBOX.results" || j.Header.Get("X-Own") != "1" || len(j.Forward) != 3 {
		t.Errorf("the job came as %+v", j)
	}
}

func TestClientTellsRefusals(t *testing.T) {
	nc, kept, stop := intake()
	defer stop()
	client := ingest.NewClient(nc)
	for _, c := range []struct {
		submission ingest.Submission
		code       ingest.Code
	}{
		{ingest.Submission{API: "nobody", Key: "k"}, ingest.UnknownAPI},
		{ingest.Submission{API: "credit-check", Key: "k", Method: "DELETE"}, ingest.Invalid},
		{ingest.Submission{API: "credit-check"}, ingest.Invalid},
		{ingest.Submission{API: "credit-check", Key: "k", Body: make([]byte, 65)}, ingest.TooLarge},
		{ingest.Submission{API: "credit-check", Key: "k", Header: []ingest.HeaderField{{Name: "X-No", Value: "1"}}}, ingest.Invalid},
	} {
		c.submission.ID, c.submission.ReplyTo = "known", "_INBOX.results"
		_, err := client.Submit(t.Context(), c.submission)
		var refusal *ingest.Refusal
		if !errors.As(err, &refusal) || refusal.Code != c.code || refusal.LetterSeq != 55 || refusal.Description == "" {
			t.Errorf("%+v: %v, want a refusal with %d and letter 55", c.submission, err, c.code)
		}
		if r := kept.refused; r.JobID != "known" || r.ReplyTo != "_INBOX.results" || r.Key != c.submission.Key {
			t.Errorf("%+v: its letter has job %q, key %q, reply subject %q", c.submission, r.JobID, r.Key, r.ReplyTo)
		}
	}
	_, err := client.Submit(t.Context(), ingest.Submission{API: "credit-check", Key: "k", ReplyTo: "weir.jobs.credit-check.k"})
	if err == nil || kept.refused.ReplyTo != "" {
		t.Errorf("weir would speak to %q: %v", kept.refused.ReplyTo, err)
	}
	for _, wrong := range []ingest.Submission{
		{},
		{API: "a.b", Key: "k"},
		{API: "*", Key: "k"},
		{API: "credit-check", Key: strings.Repeat("k", 129)},
		{API: "credit-check", Key: "k", Path: "/a\r\nEvil: 1"},
		{API: "credit-check", Key: "k", JobHeader: nats.Header{"X-Key": {" k"}}},
	} {
		var refusal *ingest.Refusal
		if _, err := client.Submit(t.Context(), wrong); err == nil || errors.As(err, &refusal) {
			t.Errorf("%+v was sent, and got %v", wrong, err)
		}
	}
}

func TestClientWithoutWeir(t *testing.T) {
	nc, _, stop := intake()
	stop()
	if _, err := ingest.NewClient(nc).Submit(t.Context(), ingest.Submission{API: "credit-check", Key: "k"}); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("on a closed connection: %v", err)
	}
	for answer, want := range map[string]ingest.ForeignAnswer{
		`{"stream":"ORDERS","seq":7}`:                     {Stream: "ORDERS"},
		`{"stream":"ORDERS","seq":7,"duplicate":true}`:    {Stream: "ORDERS"},
		`{"stream":"ORDERS","domain":"hub","seq":7}`:      {Stream: "ORDERS"},
		`{"stream":"ORDERS","seq":7,"job":"1","key":"k"}`: {Stream: "ORDERS"},
		`{"stream":"WEIR_pay_0","seq":7}`:                 {Stream: "WEIR_pay_0"},
		`{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"ORDERS","seq":0}`: {
			Stream: "ORDERS", Refused: "maximum messages exceeded",
		},
	} {
		var foreign *ingest.ForeignAnswer
		if receipt, err := ingest.ParseAnswer([]byte(answer)); !errors.As(err, &foreign) || *foreign != want {
			t.Errorf("%s: %+v, %v, want %+v", answer, receipt, err, want)
		}
	}
	for _, answer := range []string{"", "{}", "null", "hello", `{"stream":"ORDERS","seq":7}`, `{"error":"no"}`} {
		if receipt, err := ingest.ParseAnswer([]byte(answer)); err == nil {
			t.Errorf("%q passed for a receipt: %+v", answer, receipt)
		}
	}
}
