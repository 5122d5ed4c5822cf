package embedded

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

func options(t *testing.T, listen, dir string) Options {
	t.Helper()
	return Options{Listen: listen, Dir: dir, MaxPayload: 1 << 20, Log: slog.New(slog.DiscardHandler)}
}

func TestTakenPortIsAnErrorAtOnce(t *testing.T) {
	first, err := Start(t.Context(), options(t, "127.0.0.1:0", t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(first.Shutdown)
	_, err = Start(t.Context(), options(t, first.Addr(), t.TempDir()))
	if err == nil || !strings.Contains(err.Error(), first.Addr()) {
		t.Errorf("a taken port gave %v", err)
	}
}

func TestOneWeirADirectory(t *testing.T) {
	dir := t.TempDir()
	first, err := Start(t.Context(), options(t, "127.0.0.1:0", dir))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Start(t.Context(), options(t, "127.0.0.1:0", dir))
	if err == nil || !strings.Contains(err.Error(), "another weir") {
		t.Errorf("a second server in one directory gave %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "weir.lock")); err != nil {
		t.Fatal(err)
	}
	_, err = Start(t.Context(), options(t, "127.0.0.1:0", dir))
	if err == nil || !strings.Contains(err.Error(), "another weir") {
		t.Errorf("a second server in one directory, whose lock file was deleted, gave %v", err)
	}
	first.Shutdown()
	second, err := Start(t.Context(), options(t, "127.0.0.1:0", dir))
	if err != nil {
		t.Fatalf("the directory is not free after a shutdown: %v", err)
	}
	second.Shutdown()
}

// TestAsksWho checks that no client connects without credentials if these are required. Only their owner may read the
// credentials of the data directory. They stay valid after a restart, also if the group was given rights (fsGroup of
// Kubernetes), and separate producers from operators.
func TestAsksWho(t *testing.T) {
	dir := t.TempDir()
	o := options(t, "127.0.0.1:0", dir)
	o.Auth = Required
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if nc, err := nats.Connect(s.ClientURL(), nats.Timeout(await.Patience)); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("a connection without credentials: %v %v", nc, err)
	}
	for _, name := range []string{OperatorCreds, ProducerCreds} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
	s.Shutdown()
	before, err := os.ReadFile(filepath.Join(dir, OperatorCreds))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, ProducerCreds), 0o644); err != nil { //nolint:gosec // that is what is to be noticed
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, OperatorCreds), 0o660); err != nil { //nolint:gosec // as the kubelet does it
		t.Fatal(err)
	}
	leaked, err := nats.NkeyOptionFromSeed(filepath.Join(dir, ProducerCreds))
	if err != nil {
		t.Fatal(err)
	}
	if s, err = Start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	after, err := os.ReadFile(filepath.Join(dir, OperatorCreds))
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("a restart changed the operators' credentials: %v", err)
	}
	if info, err := os.Stat(filepath.Join(dir, OperatorCreds)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the group may still read the operators' credentials: %v %v", info, err)
	}
	if _, err := nats.Connect(s.ClientURL(), nats.Timeout(await.Patience), leaked); err == nil {
		t.Error("credentials that others could read are taken")
	}
	access, err := s.Access()
	if err != nil {
		t.Fatal(err)
	}
	operator, err := nats.Connect(s.ClientURL(), access...)
	if err != nil {
		t.Fatal(err)
	}
	defer operator.Close()
	if _, err := operator.Request("$JS.API.INFO", nil, 5*time.Second); err != nil {
		t.Errorf("an operator may not ask JetStream: %v", err)
	}
	option, err := nats.NkeyOptionFromSeed(filepath.Join(dir, ProducerCreds))
	if err != nil {
		t.Fatal(err)
	}
	producer, err := nats.Connect(s.ClientURL(), nats.Timeout(await.Patience), option, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	mayNot(t, producer)
}

// TestProducersLeaveRoomForOperators checks that operators can connect, however many producers are connected.
func TestProducersLeaveRoomForOperators(t *testing.T) {
	o := options(t, "127.0.0.1:0", t.TempDir())
	o.Auth, o.MaxClients = Operators, 3
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	access, err := s.Access()
	if err != nil {
		t.Fatal(err)
	}
	var refused int
	for range 5 {
		nc, err := nats.Connect(s.ClientURL(), nats.Timeout(await.Patience))
		if err != nil {
			refused++
			continue
		}
		t.Cleanup(nc.Close)
	}
	if refused != 2 {
		t.Errorf("of 5 producers %d are refused, with room for 3", refused)
	}
	nc, err := nats.Connect(s.ClientURL(), access...)
	if err != nil {
		t.Fatalf("an operator: %v", err)
	}
	nc.Close()
}

// TestFileSystemWithoutLocks checks that a start tells a file system that cannot lock from another weir.
func TestFileSystemWithoutLocks(t *testing.T) {
	f, err := os.Open(t.TempDir())
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	err = flock(f) // of a closed file, as on a file system that has no locks
	if told := notLocked("data", err).Error(); !strings.Contains(told, "data has no locks") || strings.Contains(told, "another weir") {
		t.Error(told)
	}
}
