// Package servers runs what a weir under test connects to: nats-servers, alone and in clusters, redis-servers, and
// relays that a test can cut.
package servers

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"weir/cmd/internal/machine"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/embedded"
	"weir/ingest/await"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// StartNATS runs a nats-server until the test ends.
func StartNATS(t *testing.T, opts *server.Options) *server.Server {
	t.Helper()
	if opts.JetStreamMaxStore == 0 {
		opts.JetStreamMaxStore = 100 << 30 // otherwise the free space of this disk bounds the streams
	}
	opts.AuthTimeout = 10 // a client on a busy machine may not sign in within the usual two seconds
	ns, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(await.Patience) {
		t.Fatal("the nats-server did not start")
	}
	return ns
}

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

// StartTarget runs a single nats-server and returns its address.
func StartTarget(t *testing.T) string {
	t.Helper()
	return StartNATS(t, &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(), MaxPayload: 8 << 20,
	}).ClientURL()
}

// OneServer starts a nats-server for replicas to share.
func OneServer(t *testing.T) string {
	t.Helper()
	server, err := embedded.Start(t.Context(), embedded.Options{
		MaxStore: Roomy,
		Listen:   "127.0.0.1:0", Dir: t.TempDir(), MaxPayload: 8 << 20, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	return server.ClientURL()
}

// RoleServer runs a nats-server with a configuration file. It returns a function that returns the address with a user's
// name and password.
func RoleServer(t *testing.T, file string) func(user string) string {
	t.Helper()
	opts, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	opts.Host, opts.Port, opts.NoSigs, opts.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	opts.JetStream, opts.StoreDir = true, t.TempDir()
	ns := StartNATS(t, opts)
	return func(user string) string {
		return fmt.Sprintf("nats://%s:secret-of-%s@%s", user, user, ns.Addr())
	}
}

// OperatorsAt connects to the server of nc with the operators' credentials, which the embedded server keeps in its data
// directory. If the server does not authenticate, it connects without credentials.
func OperatorsAt(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	opts := []nats.Option{nats.Timeout(await.Patience), nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond)}
	if inside := connect.AskInside(t.Context(), nc, &connect.Denials{}); inside.OperatorCreds != "" {
		option, err := nats.NkeyOptionFromSeed(inside.OperatorCreds)
		if err != nil {
			t.Fatal(err)
		}
		opts = append(opts, option)
	}
	operator, err := nats.Connect(nc.ConnectedUrl(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(operator.Close)
	js, err := jetstream.New(operator)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func JetStreamOf(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// Occupy creates a stream that is not weir's on a subject.
func Occupy(t *testing.T, url, subject string) {
	t.Helper()
	nc, err := nats.Connect(url, nats.Timeout(await.Patience))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_, err = OperatorsAt(t, nc).CreateStream(t.Context(), jetstream.StreamConfig{Name: "THEIRS", Subjects: []string{subject}})
	if err != nil {
		t.Fatal(err)
	}
}

// Roomy is the bound of the store, in bytes, in tests that are not about room. With this bound the server does not
// compare the bounds of streams with the free space of a small disk.
const Roomy = 100 << 30

func FreePort(t testing.TB) string {
	t.Helper()
	addr, err := machine.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}
