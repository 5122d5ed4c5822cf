package connect

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/weir/internal/config/environment"
	"weir/ingest/await"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// TestSignInByWord checks signing in with a user's JWT, from a file as nsc writes it and from a context. A server in
// operator mode admits no other user.
func TestSignInByWord(t *testing.T) {
	dir := t.TempDir()
	operator, account, user := newPair(t, nkeys.CreateOperator), newPair(t, nkeys.CreateAccount), newPair(t, nkeys.CreateUser)
	ofOperator := jwt.NewOperatorClaims(public(t, operator))
	signedOperator, err := ofOperator.Encode(operator)
	if err != nil {
		t.Fatal(err)
	}
	trusted, err := jwt.DecodeOperatorClaims(signedOperator)
	if err != nil {
		t.Fatal(err)
	}
	ofAccount, err := jwt.NewAccountClaims(public(t, account)).Encode(operator)
	if err != nil {
		t.Fatal(err)
	}
	ofUser, err := jwt.NewUserClaims(public(t, user)).Encode(account)
	if err != nil {
		t.Fatal(err)
	}
	known := &server.MemAccResolver{}
	if err := known.Store(public(t, account), ofAccount); err != nil {
		t.Fatal(err)
	}
	address := start(t, &server.Options{TrustedOperators: []*jwt.OperatorClaims{trusted}, AccountResolver: known}).ClientURL()
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	decorated, err := jwt.FormatUserConfig(ofUser, seed)
	if err != nil {
		t.Fatal(err)
	}
	creds := write(t, filepath.Join(dir, "weir.creds"), string(decorated))
	saveContext(t, dir, "word", map[string]any{"url": address, "user_jwt": ofUser, "user_seed": "file://" + write(t, filepath.Join(dir, "seed"), string(seed))})
	saveContext(t, dir, "file", map[string]any{"url": address, "creds": creds})
	saveContext(t, dir, "key", map[string]any{"url": address, "nkey": filepath.Join(dir, "seed")})
	for name, c := range map[string]struct {
		variable, value string
		err             error
	}{
		"credentials":                 {"WEIR_NATS_CREDS", creds, nil},
		"a context with credentials":  {"WEIR_NATS_CONTEXT", "file", nil},
		"a context with word and key": {"WEIR_NATS_CONTEXT", "word", nil},
		"a context with a key alone":  {"WEIR_NATS_CONTEXT", "key", nats.ErrAuthorization},
		"nothing":                     {"WEIR_NATS_CREDS", "", nats.ErrAuthorization},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_CONFIG_HOME", dir)
			if c.variable != "WEIR_NATS_CONTEXT" {
				t.Setenv("WEIR_NATS_URL", address)
			}
			t.Setenv(c.variable, c.value)
			connection, err := Dial()
			if !errors.Is(err, c.err) {
				t.Errorf("the connection: %v", err)
			}
			if err == nil {
				connection.Close()
			}
		})
	}
}

// TestSignInByToken checks signing in with a token, which only a context can contain.
func TestSignInByToken(t *testing.T) {
	dir := t.TempDir()
	address := start(t, &server.Options{Authorization: "hunter2-hunter2"}).ClientURL()
	t.Setenv("XDG_CONFIG_HOME", dir)
	for token, want := range map[string]error{
		"hunter2-hunter2": nil, "file://" + write(t, filepath.Join(dir, "token"), "hunter2-hunter2\n"): nil, "hunter3": nats.ErrAuthorization,
	} {
		saveContext(t, dir, "token", map[string]any{"url": address, "token": token, "tls_first": false})
		t.Setenv("WEIR_NATS_CONTEXT", "token")
		c, err := Dial()
		if !errors.Is(err, want) || err != nil && strings.Contains(err.Error(), "hunter3") {
			t.Errorf("the connection: %v", err)
		}
		if err == nil {
			c.Close()
		}
	}
}

// TestPasswordIsReadAgain checks that a new connection uses the password that is in its file then. While the file is
// missing, it uses the password read last.
func TestPasswordIsReadAgain(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "password"), "first\n")
	opts := &server.Options{Username: "weir", Password: "first"}
	ns := start(t, opts)
	t.Setenv("WEIR_NATS_URL", ns.ClientURL())
	t.Setenv("WEIR_NATS_USER", "weir")
	t.Setenv("WEIR_NATS_PASSWORD", "${file:"+file+"}")
	settings, err := environment.Read()
	if err != nil {
		t.Fatal(err)
	}
	again := make(chan struct{}, 8)
	nc, err := nats.Connect(ns.ClientURL(), append(Options(settings), nats.MaxReconnects(-1), nats.ReconnectWait(1), nats.IgnoreAuthErrorAbort(),
		nats.ReconnectHandler(func(*nats.Conn) { again <- struct{}{} }))...)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := nc.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	await.Receive(t, "a connection with the password read before", again)
	write(t, file, "second\n")
	changed := opts.Clone()
	changed.Password = "second"
	if err := ns.ReloadOptions(changed); err != nil {
		t.Fatal(err)
	}
	await.Receive(t, "a connection with the new password", again)
}

func start(t *testing.T, opts *server.Options) *server.Server {
	t.Helper()
	opts.Host, opts.Port, opts.NoSigs, opts.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	ns, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); await.Return(t, "the end of the server", ns.WaitForShutdown) })
	if !ns.ReadyForConnections(await.Patience) {
		t.Fatal("the nats-server did not start")
	}
	return ns
}

// saveContext writes a context of the nats command, which keeps its contexts below dir.
func saveContext(t *testing.T, dir, name string, fields map[string]any) {
	t.Helper()
	text, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "nats", "context", name+".json"), string(text))
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

func newPair(t *testing.T, create func() (nkeys.KeyPair, error)) nkeys.KeyPair {
	t.Helper()
	pair, err := create()
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func public(t *testing.T, pair nkeys.KeyPair) string {
	t.Helper()
	key, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}
