package weirtest

import (
	"fmt"
	"os"
	"testing"

	"weir/cmd/weir/internal/config"

	"github.com/nats-io/nats-server/v2/server"
)

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
	if !ns.ReadyForConnections(Patience) {
		t.Fatal("the nats-server did not start")
	}
	return ns
}

// WorkerSettings returns ExternalSettings for the user with the role worker in accounts.conf.
func WorkerSettings(t testing.TB, url, file, instance string, roles ...config.Role) *config.Settings {
	t.Helper()
	s := ExternalSettings(t, url, file, instance, roles...)
	s.NATSInbox = "_INBOX.worker"
	return s
}

func MustRead(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
