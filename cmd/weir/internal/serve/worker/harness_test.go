package worker

import (
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
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

// writeText writes a text to a file.
func writeText(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
