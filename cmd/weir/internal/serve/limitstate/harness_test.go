package limitstate

import (
	"log/slog"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/serve/clock"
	"weir/cmd/weir/internal/serve/embedded"
	"weir/dispatcher"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// serverForLimits runs a server with the stores that limits need, and returns options for them without a Caller.
func serverForLimits(t *testing.T) *Options {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	server, err := embedded.Start(t.Context(), embedded.Options{
		Listen: "127.0.0.1:0", Dir: t.TempDir(), MaxPayload: 1 << 20, Log: log,
		MaxStore: 100 << 30, // the ledger has its place also on a disk that has little
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	nc, err := nats.Connect(server.ClientURL(), nats.Timeout(await.Patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "control"})
	if err != nil {
		t.Fatal(err)
	}
	if err := dispatcher.EnsureStreams(t.Context(), dispatcher.Options{JetStream: js, Replicas: 1, LedgerAge: 100 * 24 * time.Hour, Log: log}); err != nil {
		t.Fatal(err)
	}
	return &Options{Conn: nc, JetStream: js, Control: kv, Log: log, Clock: clock.New(), Pools: &Pools{}, Instance: "test"}
}

// testUnit returns the unit of an api whose limits are in store.
func testUnit(api string, store *bucket.Memory) unit {
	return unit{name: api, apis: []string{api}, rules: store.Rules()}
}
