package worker

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/ingest/await"
)

// TestNodeWatch checks that the watch leaves a node through which JetStream does not answer, and stays at one through
// which it answers.
func TestNodeWatch(t *testing.T) {
	start := func(withJetStream bool) *server.Server {
		return runNATS(t, &server.Options{
			Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: withJetStream, StoreDir: t.TempDir(),
		})
	}
	silent, answering := start(false), start(true)
	moved := make(chan string, 10)
	nc, err := nats.Connect(silent.ClientURL()+","+answering.ClientURL(), nats.DontRandomize(), nats.MaxReconnects(-1),
		nats.ReconnectWait(time.Millisecond), nats.ReconnectHandler(func(nc *nats.Conn) { moved <- nc.ConnectedUrl() }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	watch := nodeWatch{nc: nc, js: js, silent: 200 * time.Millisecond, log: slog.New(slog.DiscardHandler)}
	go func() { done <- watch.run(ctx) }()
	limit := time.After(30 * time.Second)
	for nc.ConnectedUrl() != answering.ClientURL() {
		select {
		case <-moved:
		case <-limit:
			t.Fatalf("still at %s", nc.ConnectedUrl())
		}
	}
	await.Until(t, "it to stay there", func() bool { // on a busy machine one answer may come too late
		select {
		case <-moved:
			return false
		case <-time.After(5 * watch.silent):
			return nc.ConnectedUrl() == answering.ClientURL()
		}
	})
	stop()
	if err := await.Receive(t, "the end of the watch", done); err != nil {
		t.Error(err)
	}
}
