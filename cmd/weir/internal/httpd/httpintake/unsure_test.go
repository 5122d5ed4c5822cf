package httpintake

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/cmd/weir/internal/httpd/console"
	"weir/cmd/weir/internal/ops/jobstory"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// slowQueue is a real stream that answers late: it stores a job, but does not answer in time.
type slowQueue struct {
	js   jetstream.JetStream
	slow atomic.Bool
}

// Stream implements ingest.Queue.
func (*slowQueue) Stream(string) string { return "WEIR_pay_0" }

// Put implements ingest.Queue.
func (q *slowQueue) Put(j *ingest.Job, done func(ingest.Receipt, *ingest.Refusal)) {
	msg := &nats.Msg{Subject: "q.pay." + j.Key, Data: j.Body, Header: nats.Header{ingest.HeaderMsgID: {j.DedupeID}, ingest.HeaderJobID: {j.ID}}}
	go func() {
		ack, err := q.js.PublishMsg(context.Background(), msg)
		switch {
		case q.slow.Load():
		case err != nil:
			done(ingest.Receipt{}, &ingest.Refusal{Code: ingest.Unavailable, Description: err.Error()})
		default:
			done(ingest.Receipt{Stream: ack.Stream, Seq: ack.Sequence, Job: j.ID, Key: j.Key, Duplicate: ack.Duplicate, Position: 1}, nil)
		}
	}()
}

// find searches the stream for a job.
func (q *slowQueue) find(ctx context.Context, api, key, job string) (*jobstory.Timeline, error) {
	t := &jobstory.Timeline{}
	msg, err := q.stream(ctx).GetLastMsgForSubject(ctx, "q.pay."+key)
	if err == nil && msg.Header.Get(ingest.HeaderJobID) == job {
		t.Jobs = []*jobstory.Job{{API: api, Key: key, Job: job, State: jobstory.Queued}}
	}
	return t, nil
}

func (q *slowQueue) stream(ctx context.Context) jetstream.Stream {
	s, err := q.js.Stream(ctx, "WEIR_pay_0")
	if err != nil {
		panic(err) // the test has made the stream
	}
	return s
}

// TestUnsureSaysWhereToLook checks the answer if the store does not answer in time: 504 with the job's id, even if the
// producer chose none, and with the place to ask about the job. The job is stored, so sent again under that id it is a
// duplicate.
func TestUnsureSaysWhereToLook(t *testing.T) {
	js := natstest.JetStream(t)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "WEIR_pay_0", Subjects: []string{"q.pay.>"}}); err != nil {
		t.Fatal(err)
	}
	queue := &slowQueue{js: js}
	apis := map[string]*ingest.API{"pay": {Queue: queue, Rule: &ingest.Rule{API: "pay", Methods: []string{"POST"}, MaxBody: 64}}}
	intake, err := ingest.Start(ingest.Options{
		Conn: js.Conn(), Version: "0.0.0", APIs: func() map[string]*ingest.API { return apis }, Log: slog.New(slog.DiscardHandler),
		Bury: func(_ ingest.Refused, done func(uint64, error)) { done(1, nil) },
	})
	if err != nil {
		t.Fatal(err)
	}
	d := New(Options{
		Intake: intake, Bucket: func(string, string) (Bucket, bool) { return Bucket{}, false }, Find: queue.find,
		Result:   func(context.Context, uint64) (*jobstory.KeptResult, error) { return nil, nil },
		MaxPosts: 4, MaxBodies: 1 << 10, MaxLookups: 1, Log: slog.New(slog.DiscardHandler),
	})
	d.answerWait = 50 * time.Millisecond
	mux := http.NewServeMux()
	for _, r := range d.Routes() {
		mux.HandleFunc(r.Method+" "+r.Path, func(w http.ResponseWriter, q *http.Request) { r.Serve(w, q, console.Actor{}) })
	}
	server := httptest.NewServer(mux)
	defer server.Close()

	ask := func(method, path, id string) (*http.Response, map[string]any) {
		t.Helper()
		q, err := http.NewRequestWithContext(await.Context(t, "an answer"), method, server.URL+path, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		if id != "" {
			q.Header.Set("Idempotency-Key", id)
		}
		res, err := server.Client().Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		var told map[string]any
		if err := json.NewDecoder(res.Body).Decode(&told); err != nil {
			t.Fatal(err)
		}
		return res, told
	}
	for key, id := range map[string]string{"k%2F1": "", "k2": `"order/1"`} {
		queue.slow.Store(true)
		res, told := ask(http.MethodPost, "/v1/jobs/pay/"+key, id)
		job, _ := told["job"].(string)
		if res.StatusCode != http.StatusGatewayTimeout || res.Header.Get("Retry-After") == "" || job == "" || id != "" && job != "order/1" {
			t.Fatalf("answered %d %v", res.StatusCode, told)
		}
		where := res.Header.Get("Location")
		if detail, _ := told["detail"].(string); where == "" || !strings.Contains(detail, "Location") {
			t.Fatalf("it does not say where to look: %q, %v", where, told)
		}
		await.Until(t, "the job to be stored", func() bool {
			res, state := ask(http.MethodGet, where, "")
			return res.StatusCode == http.StatusOK && state["state"] == "queued" && state["job"] == job
		})
		queue.slow.Store(false)
		await.Until(t, "an answer in time", func() bool { // on a busy machine an answer may be late
			res, told := ask(http.MethodPost, "/v1/jobs/pay/"+key, job)
			if res.StatusCode != http.StatusGatewayTimeout && (res.StatusCode != http.StatusAccepted || told["duplicate"] != true) {
				t.Fatalf("sent again it is answered %d %v", res.StatusCode, told)
			}
			return res.StatusCode == http.StatusAccepted
		})
	}
	if info, err := queue.stream(t.Context()).Info(t.Context()); err != nil || info.State.Msgs != 2 {
		t.Errorf("%v jobs of 2 are stored: %v", info, err)
	}
}
