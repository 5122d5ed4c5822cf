package ingest_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"weir/ingest"
	"weir/ingest/await"
)

// asked is an answer to a request of nats micro.
func asked[T any](t *testing.T, nc *nats.Conn, subject string) (answer T) {
	t.Helper()
	msg, err := nc.Request(subject, nil, await.Patience)
	if err != nil {
		t.Fatal(subject, err)
	}
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		t.Fatal(subject, err)
	}
	return answer
}

// TestRefusalsAreCounted checks that NATS tools count a refusal as an error of the micro service, even if weir sends it
// long after the handler has returned.
func TestRefusalsAreCounted(t *testing.T) {
	nc, kept, stop := intake()
	defer stop()
	for range 3 { // the third finds the bucket full
		if _, err := nc.Request("weir.jobs.credit-check.k", []byte("{}"), await.Patience); err != nil {
			t.Fatal(err)
		}
	}
	kept.mu.Lock()
	kept.later = true
	kept.mu.Unlock()
	if _, err := nc.Request("weir.jobs.credit-check.k", []byte("{}"), await.Patience); err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Request("weir.jobs.nobody.k", []byte("{}"), await.Patience); err != nil {
		t.Fatal(err)
	}
	ping := asked[micro.Ping](t, nc, "$SRV.PING")
	if ping.Name != "weir" || ping.ID == "" || ping.Version != "0.0.0" || ping.Type != micro.PingResponseType {
		t.Errorf("ping: %+v", ping)
	}
	info := asked[micro.Info](t, nc, "$SRV.INFO.weir")
	if len(info.Endpoints) != 2 || info.Endpoints[0].Subject != "weir.jobs.>" || info.Endpoints[0].QueueGroup != ingest.QueueGroup || info.Description == "" {
		t.Errorf("info: %+v", info)
	}
	stats := asked[micro.Stats](t, nc, "$SRV.STATS.weir."+ping.ID)
	if len(stats.Endpoints) != 2 {
		t.Fatalf("stats: %+v", stats)
	}
	jobs := stats.Endpoints[0]
	if jobs.Name != "jobs" || jobs.NumRequests != 5 || jobs.NumErrors != 3 || jobs.LastError != `404:no api "nobody" is configured` ||
		jobs.ProcessingTime <= 0 || jobs.AverageProcessingTime != jobs.ProcessingTime/5 || !strings.Contains(string(jobs.Data), `"dropped":0`) {
		t.Errorf("jobs: %+v %s", jobs, jobs.Data)
	}
	if redrives := stats.Endpoints[1]; redrives.NumRequests != 0 || redrives.NumErrors != 0 {
		t.Errorf("redrives: %+v", redrives)
	}
}

// TestRefusalHeaders checks that a refusal also has its code and its description in the headers of NATS micro services,
// in ASCII, and that the body still decides the outcome of a publish.
func TestRefusalHeaders(t *testing.T) {
	nc, _, stop := intake()
	defer stop()
	for _, c := range []struct{ subject, code, text string }{
		{"weir.jobs.credit-check.kü", "", ""},
		{"weir.jobs.credit-check.kü", "", ""},
		{"weir.jobs.credit-check.kü", "429", "bucket full: credit-check/k%C3%BC holds 2 of 2"},
		{"weir.jobs.credit-check", "400", "key: publish to weir.jobs.credit-check.<key>"},
		{"weir.jobs." + strings.Repeat("x", 100) + ".k", "404", `no api "` + strings.Repeat("x", 64) + `%E2%80%A6" is configured`},
	} {
		answer, err := nc.Request(c.subject, []byte("{}"), await.Patience)
		if err != nil {
			t.Fatal(c.subject, err)
		}
		if code, text := answer.Header.Get("Nats-Service-Error-Code"), answer.Header.Get("Nats-Service-Error"); code != c.code || text != c.text {
			t.Errorf("%s: %q %q", c.subject, code, text)
		}
		if status := answer.Header.Get("Status"); status != "" {
			t.Errorf("%s: status line %q", c.subject, status)
		}
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	full := "bucket full: credit-check/k%C3%BC holds 2 of 2"
	_, err = js.Publish(t.Context(), "weir.jobs.credit-check.kü", []byte("{}"))
	var refused *jetstream.APIError
	if !errors.As(err, &refused) || refused.Code != 429 || refused.ErrorCode != 20429 || refused.Description != strings.ReplaceAll(full, "%C3%BC", "ü") {
		t.Errorf("js.Publish: %v", err)
	}
	async, err := js.PublishAsync("weir.jobs.credit-check.kü", []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err = <-async.Err():
	case <-async.Ok():
	case <-time.After(await.Patience):
	}
	if !errors.As(err, &refused) || refused.Code != 429 {
		t.Errorf("js.PublishAsync: %v", err)
	}
	old, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	var oldRefused *nats.APIError
	if _, err = old.Publish("weir.jobs.credit-check.kü", []byte("{}")); !errors.As(err, &oldRefused) || oldRefused.Code != 429 {
		t.Errorf("the JetStream of nats.go: %v", err)
	}
	if ack, err := js.Publish(t.Context(), "weir.jobs.credit-check.other", []byte("{}")); err != nil || ack.Sequence != 1 {
		t.Errorf("js.Publish of a job that is taken: %+v %v", ack, err)
	}
}
