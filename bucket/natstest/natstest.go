// Package natstest starts real nats-servers for tests.
package natstest

import (
	"net"
	"testing"
	"time"

	"weir/ingest/await"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// started is how long a server may take to listen.
const started = 90 * time.Second

// Start runs a server with JetStream until the test has ended. Its store is in dir; port 0 stands for any port.
func Start(t testing.TB, dir string, port int) *server.Server {
	t.Helper()
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return start(t, &server.Options{Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir, JetStreamMaxStore: 100 << 30})
}

// Port returns the port on which a server listens, so that Start can restart it there.
func Port(t *testing.T, ns *server.Server) int {
	t.Helper()
	addr, ok := ns.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("the server listens at %v", ns.Addr())
	}
	return addr.Port
}

// StartWith is Start on any port and with a new store. A message may have up to maxPayload bytes.
func StartWith(t *testing.T, maxPayload int32) *server.Server {
	t.Helper()
	return start(t, &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(), MaxPayload: maxPayload,
	})
}

// StartSmall is Start on any port and with a new store, in which streams may reserve as many bytes as room.
func StartSmall(t *testing.T, room int64) *server.Server {
	t.Helper()
	return start(t, &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(), JetStreamMaxStore: room,
	})
}

func start(t testing.TB, o *server.Options) *server.Server {
	t.Helper()
	ns, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(started) {
		t.Fatalf("the nats-server did not listen within %v", started)
	}
	return ns
}

// Connect returns a connection that closes when the test ends. It reconnects without limit.
func Connect(t testing.TB, ns *server.Server) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(ns.ClientURL(), nats.Timeout(await.Patience), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
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

// JetStream starts a server with a new store, and returns a connection to it. Both end with the test.
func JetStream(t *testing.T) jetstream.JetStream {
	t.Helper()
	return Connect(t, Start(t, t.TempDir(), 0))
}
