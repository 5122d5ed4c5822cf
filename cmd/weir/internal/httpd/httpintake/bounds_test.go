package httpintake

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/httpd/console"
	"weir/cmd/weir/internal/ops/jobstory"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
)

// TestPostsAreBounded checks the bound on posts under way. While the bodies of that many posts do not arrive, another
// post to any route gets 503 and a time to come back. After one of them ends, posts are taken again. A job that got 503
// is not stored.
func TestPostsAreBounded(t *testing.T) {
	const most = 3
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
		MaxPosts: most, MaxBodies: 1 << 10, MaxLookups: 1, Log: slog.New(slog.DiscardHandler),
	})
	for _, r := range d.Routes() {
		if r.Method == http.MethodGet && (r.AtOnce < 1 || r.AtOnce > most/2) {
			t.Errorf("%d lookups hold a connection at a time, beside %d posts", r.AtOnce, most)
		}
	}
	d.bodyWait = time.Hour
	server, err := console.Listen(console.Options{
		Listen: "127.0.0.1:0", Auth: environment.AuthOperators, Named: func() *config.HTTP { return nil }, Gatherer: prometheus.NewRegistry(), Version: "1",
		Connections: 100, HeaderBytes: 1 << 20, Log: slog.New(slog.DiscardHandler),
		Ready: func(context.Context) error { return nil }, Alive: func() error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	server.Add(d.Routes()...)
	server.Serve()
	t.Cleanup(func() { _ = server.Close() })
	post := func(path string, body io.Reader) (status int, retry string, err error) {
		url := fmt.Sprintf("http://%s/v1/jobs/%s", server.Addr(), path)
		q, err := http.NewRequestWithContext(await.Context(t, "an answer to "+path), http.MethodPost, url, body)
		if err != nil {
			return 0, "", err
		}
		q.ContentLength = 1
		res, err := http.DefaultClient.Do(q)
		if err != nil {
			return 0, "", err
		}
		return res.StatusCode, res.Header.Get("Retry-After"), res.Body.Close()
	}
	type answer struct {
		status int
		err    error
	}
	answers := make(chan answer, most)
	var bodies []*io.PipeWriter
	for k := range most {
		body, late := io.Pipe()
		bodies = append(bodies, late)
		go func() {
			status, _, err := post(fmt.Sprint("pay/slow", k), body)
			answers <- answer{status, err}
		}()
	}
	room := d.MaxBodies - most // each post under way has taken the room of its body
	await.Until(t, "all posts to be under way", func() bool {
		if !d.bodies.TryAcquire(room + 1) {
			return true
		}
		d.bodies.Release(room + 1)
		return false
	})
	for _, path := range []string{"pay/many", "pay"} {
		status, retry, err := post(path, strings.NewReader("x"))
		if err != nil || status != http.StatusServiceUnavailable || retry == "" {
			t.Errorf("a post too many to %s is answered %d, to come again after %q: %v", path, status, retry, err)
		}
	}
	for _, late := range bodies {
		if _, err := late.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		_ = late.Close()
	}
	for range most {
		if a := await.Receive(t, "an answer to a post whose body came", answers); a.err != nil || a.status != http.StatusAccepted {
			t.Errorf("a post whose body came late is answered %d: %v", a.status, a.err)
		}
	}
	await.Until(t, "a job to be taken again", func() bool {
		status, _, err := post("pay/after", strings.NewReader("x"))
		return err == nil && status == http.StatusAccepted
	})
	if _, err := queue.stream(t.Context()).GetLastMsgForSubject(t.Context(), "q.pay.many"); err == nil {
		t.Error("a job is kept whose post was told 503")
	}
}
