package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/worker"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// TestServerInsideAsksWho: with WEIR_NATS_AUTH=required nobody gets into the server inside without credentials of the data directory.
// Commands on the same directory find the operators' by themselves. A producer's let jobs in, and nothing else.
func TestServerInsideAsksWho(t *testing.T) {
	r := readyRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, "apis:\n  pay: {url: %s, bucket: {rate: 100/s, capacity: 9}}\n")
	s := r.settings()
	s.NATSAuth = config.AuthRequired
	w, err := worker.Start(await.Context(t, "a worker to start"), s, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		w.Stop()
		if err := await.Result(t, "the end of the worker", w.Wait); err != nil {
			t.Error(err)
		}
	}()
	if nc, err := nats.Connect(w.NATSURL()); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("a connection without credentials: %v %v", nc, err)
	}
	address := strings.TrimPrefix(w.NATSURL(), "nats://")
	own := []string{"WEIR_NATS_LISTEN=" + address, "WEIR_DATA_DIR=" + s.DataDir}
	producer := []string{"WEIR_NATS_URL=" + w.NATSURL(), "WEIR_NATS_CREDS=" + filepath.Join(s.DataDir, "producer.creds")}
	operator := []string{"WEIR_NATS_URL=" + w.NATSURL(), "WEIR_NATS_CREDS=" + filepath.Join(s.DataDir, "operator.creds")}
	nobody := []string{"WEIR_NATS_LISTEN=" + address, "WEIR_DATA_DIR=" + t.TempDir()}
	for _, c := range []struct {
		who  string
		env  []string
		args string
		code int
		says string
	}{
		{"the producer", producer, "submit pay k --data x --wait", 0, ""},
		{"the producer", producer, "pause pay", cli.ExitFailed, "refuses"},
		{"the operator", own, "pause pay", 0, ""},
		{"the operator", own, "resume pay", 0, ""},
		{"the operator", operator, "config show", 0, "apis:"},
		{"nobody", nobody, "config show", cli.ExitUnreachable, "operator.creds"},
	} {
		if got := command(t, c.env, strings.Fields(c.args)...); got.code != c.code || !strings.Contains(got.stdout+got.stderr, c.says) {
			t.Errorf("%s: weir %s ended with %+v", c.who, c.args, got)
		}
	}
	if text, err := os.ReadFile(filepath.Join(s.DataDir, "operator.creds")); err != nil || !strings.Contains(string(text), "SEED") {
		t.Errorf("%v", err)
	}
}

// TestCommandsOutliveTheirCredentials: where weir asked for credentials and does not any more, commands that find the old ones connect
// all the same.
func TestCommandsOutliveTheirCredentials(t *testing.T) {
	r := readyRig(t, fakeapi.Options{}, "apis:\n  pay: {url: %s, bucket: {rate: 100/s, capacity: 9}}\n")
	for _, auth := range []config.NATSAuth{config.AuthRequired, config.AuthOpen} {
		s := r.settings()
		s.NATSAuth = auth
		w, err := worker.Start(await.Context(t, "a worker to start"), s, testLog(t))
		if err != nil {
			t.Fatal(err)
		}
		env := []string{"WEIR_NATS_LISTEN=" + strings.TrimPrefix(w.NATSURL(), "nats://"), "WEIR_DATA_DIR=" + s.DataDir}
		if got := command(t, env, "config", "show"); got.code != 0 {
			t.Errorf("%s: %+v", auth, got)
		}
		w.Stop()
		if err := await.Result(t, "the end of the worker", w.Wait); err != nil {
			t.Error(err)
		}
	}
}
