package console

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// TestNothingIsToldToTheLog makes calls fail in every way, with a secret in the header, the url, the query, the body
// and the answer, and changes the secret between two calls. The api gets the new one. No line of the log and no
// letter's detail contains either.
func TestNothingIsToldToTheLog(t *testing.T) {
	t.Parallel()
	api := weirtest.StartOrdered(t, map[string][]string{
		"k2": {"status=500"}, "k3": {"close"}, "k4": {"status=400;text=swordfish"}, "k5": {"reset=answer;text=swordfish and more"},
		"k6": {"status=429;text=swordfish"}, "k7": {"hang"},
	})
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	weirtest.WriteFile(t, secret, "swordfish-1")
	file := filepath.Join(dir, "weir.yaml")
	weirtest.WriteFile(t, file, fmt.Sprintf(`
apis:
  pay:
    url: %s/swordfish
    timeout: 300ms
    headers: {X-Secret: "${file:%s}"}
    bucket: {rate: 100/s, capacity: 9}
    retry: {attempts: 2, min: 1ms, max: 2ms}
`, api.URL(), secret))
	log := &program.Book{}
	w, err := worker.Start(await.Context(t, "a worker to start"), &environment.Settings{
		Config: file, NATSListen: "127.0.0.1:0", DataDir: filepath.Join(dir, "data"), Durability: environment.DurabilityAlways, Replicas: 1,
		Partitions: 4, Roles: []environment.Role{environment.RoleDispatch, environment.RoleIngest}, Instance: "test", ShutdownTimeout: 10 * time.Second,
	}, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	r := weirtest.RigBeside(t, w, api)
	for n := range 8 {
		if n == 1 {
			weirtest.WriteFile(t, secret, "swordfish-2")
		}
		key := fmt.Sprintf("k%d", n)
		r.Producer().Send("pay", key, nats.Header{"Weir-Path": {"/" + key}, "Weir-Query": {"q=swordfish"}}, "swordfish")
		r.Store().Ended("pay", key, 1)
		for _, a := range api.Arrivals(key) {
			if want := fmt.Sprintf("swordfish-%d", min(n, 1)+1); a.Header("X-Secret") != want {
				t.Errorf("call of %s with the secret %s, want %s", key, a.Header("X-Secret"), want)
			}
		}
		for _, letter := range r.Store().Letters("pay", key) {
			if detail := letter.Header.Get("Weir-Dead-Detail"); strings.Contains(detail, "swordfish") || strings.Contains(detail, api.URL()) {
				t.Errorf("a letter tells: %s", detail)
			}
		}
	}
	log.Mu.Lock()
	defer log.Mu.Unlock()
	if !strings.Contains(log.Text.String(), "job buried") {
		t.Error("the log is not the worker's")
	}
	for line := range strings.Lines(log.Text.String()) {
		if strings.Contains(line, "swordfish") || strings.Contains(line, api.URL()) {
			t.Errorf("the log tells: %s", line)
		}
	}
}
