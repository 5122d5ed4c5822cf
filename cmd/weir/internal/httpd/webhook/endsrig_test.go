package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/cmd/weir/internal/config"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
)

// endsRig has the streams of ends, and senders for the callbacks of the apis pay and sms.
type endsRig struct {
	*receiver
	t        *testing.T
	js       jetstream.JetStream
	kv       jetstream.KeyValue
	config   *config.Config
	registry *prometheus.Registry
	senders  *Senders
	running  context.Context // of the senders
}

func newEndsRig(t *testing.T) *endsRig {
	t.Helper()
	t.Setenv("HOOK_SECRET", testSecret)
	r := &endsRig{receiver: newReceiver(t), t: t, js: natstest.JetStream(t)}
	for name, subjects := range map[string]string{
		ledger.ResultsStream: "weir.results.>",
		deadletter.Stream:    "weir.dead.>",
	} {
		if _, err := r.js.CreateStream(t.Context(), jetstream.StreamConfig{
			Name:        name,
			Subjects:    []string{subjects},
			AllowDirect: true,
		}); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if r.kv, err = r.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "control"}); err != nil {
		t.Fatal(err)
	}
	const api = "  %s:\n    url: http://127.0.0.1:9/\n    " +
		"callback: {url: %q, secret: \"${env:HOOK_SECRET}\", rate: 1000/s}\n    bucket: {rate: 1/s, capacity: 1}\n"
	text := "apis:\n" + fmt.Sprintf(api, "pay", r.URL) + fmt.Sprintf(api, "sms", r.URL)
	if r.config, err = config.Parse([]byte(text), config.Options{}); err != nil {
		t.Fatal(err)
	}
	return r
}

// start runs senders until the test ends, or until stop is called.
func (r *endsRig) start() (stop func()) {
	r.t.Helper()
	if err := Begin(r.t.Context(), r.js, r.kv, r.config, 1); err != nil {
		r.t.Fatal(err)
	}
	r.senders = r.newSenders(r.config, 1, slog.DiscardHandler)
	ctx, cancel := context.WithCancel(r.t.Context())
	r.running = ctx
	ended := make(chan error, 1)
	go func() { ended <- r.senders.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := await.Receive(r.t, "the end of the senders", ended); err != nil {
				r.t.Error(err)
			}
		})
	}
	r.t.Cleanup(stop)
	return stop
}

// newSenders returns the senders of a replica that follows this version of the configuration.
func (r *endsRig) newSenders(c *config.Config, version uint64, log slog.Handler) *Senders {
	r.registry = prometheus.NewRegistry()
	return New(Options{
		JetStream:  r.js,
		Control:    r.kv,
		Configured: func() *config.Config { return c },
		Version:    func() uint64 { return version },
		Instance:   "this",
		Log:        slog.New(log), Registerer: r.registry,
	})
}

// result stores the result of a job and returns its sequence.
func (r *endsRig) result(api, job string, body []byte) uint64 {
	r.t.Helper()
	return r.put(&nats.Msg{Subject: ledger.ResultSubject(api, "k"), Data: body, Header: nats.Header{
		ingest.HeaderMsgID:   {"result.WEIR_" + api + "_0." + job + ".17"},
		ingest.HeaderJobID:   {job},
		ledger.HeaderOutcome: {ledger.Done},
		ledger.HeaderStatus:  {"200"}, ledger.HeaderAttempts: {"1"}, ledger.HeaderCalls: {"2"}, ledger.HeaderPrice: {"0.10"},
		ledger.HeaderFinishedAt: {"2026-01-02T15:04:05Z"}, ingest.HeaderRedrives: {"3"}, "Content-Type": {"text/plain"},
	}})
}

// letter stores the letter of a job and returns its sequence.
func (r *endsRig) letter(api, job string) uint64 {
	r.t.Helper()
	l := deadletter.Letter{
		API:    api,
		Key:    "k",
		JobID:  job,
		Origin: "WEIR_" + api + "_0." + job + ".17",
		Reason: deadletter.Rejected,
		Detail: "the api answered 400",
		Body:   []byte("the job's own"), At: time.Now(), Attempts: 1, Status: 400, Billed: deadletter.NotBilled,
		Answer: &deadletter.Answer{Status: 400, Body: []byte("no such customer")},
	}
	return r.put(l.Message())
}

func (r *endsRig) put(msg *nats.Msg) uint64 {
	r.t.Helper()
	ack, err := r.js.PublishMsg(r.t.Context(), msg)
	if err != nil {
		r.t.Fatal(err)
	}
	return ack.Sequence
}

// noted returns the stored position of a feed.
func (r *endsRig) noted(feed string) (e entry) {
	r.t.Helper()
	stored, err := r.kv.Get(r.t.Context(), "callback."+feed+".position")
	if err == nil {
		err = json.Unmarshal(stored.Value(), &e)
	}
	if err != nil {
		r.t.Fatalf("the position of %s: %v", feed, err)
	}
	return e
}

// position stores a position for a feed.
func (r *endsRig) position(feed string, e entry) {
	r.t.Helper()
	if _, err := r.kv.Put(r.t.Context(), "callback."+feed+".position", mustMarshal(e)); err != nil {
		r.t.Fatal(err)
	}
}
