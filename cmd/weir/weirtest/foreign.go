package weirtest

import (
	"testing"

	"weir/ingest/await"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// PlainServer runs a nats-server with JetStream and no weir, and connects to it.
func PlainServer(t *testing.T) (url string, js jetstream.JetStream) {
	t.Helper()
	ns := StartNATS(t, &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(),
	})
	nc, err := nats.Connect(ns.ClientURL(), nats.Timeout(await.Patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	return ns.ClientURL(), js
}

const UnreachableAPI = "apis:\n  pay:\n    url: http://127.0.0.1:1\n    bucket: {rate: 100/s, capacity: 2}\n"
