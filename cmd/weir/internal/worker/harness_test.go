package worker

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"weir/cmd/weir/internal/embedded"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// runNATS runs a nats-server until the test ends.
func runNATS(t *testing.T, opts *server.Options) *server.Server {
	t.Helper()
	ns, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(90 * time.Second) {
		t.Fatal("the nats-server did not start")
	}
	return ns
}

// storeOf is a JetStream of the test's own.
func storeOf(t *testing.T) jetstream.JetStream {
	t.Helper()
	server, err := embedded.Start(t.Context(), embedded.Options{Listen: "127.0.0.1:0", Dir: t.TempDir(), MaxPayload: 8 << 20, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	nc, err := nats.Connect(server.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// writeText makes a file of a text.
func writeText(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
