package jobs

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/serve/embedded"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/referee"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestExternalServer: the same main job on a server that runs elsewhere, with two dispatching replicas and an intake.
func TestExternalServer(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start(t.Context(), embedded.Options{
		MaxStore: servers.Roomy,
		Listen:   "127.0.0.1:0", Dir: t.TempDir(), MaxPayload: 8 << 20, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	api, err := fakeapi.Start(fakeapi.Options{Key: fakeapi.KeyFrom{Header: "X-Key"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	file := filepath.Join(t.TempDir(), "weir.yaml")
	weirtest.WriteFile(t, file, fmt.Sprintf("apis:\n  ext:\n    url: %s\n    bucket: {rate: 200/s, capacity: 100}\n", api.URL()))

	first, err := worker.Start(await.Context(t, "a worker to start"), program.ExternalSettings(t, server.ClientURL(), file, "first"), weirtest.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	second, err := worker.Start(await.Context(t, "a worker to start"), program.ExternalSettings(t, server.ClientURL(), file, "second"), weirtest.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	intake, err := worker.Start(await.Context(t, "a worker to start"), program.ExternalSettings(t, server.ClientURL(), file, "intake", environment.RoleIngest), weirtest.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(server.ClientURL(), nats.Timeout(await.Patience))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		ack, err := js.Publish(t.Context(), fmt.Sprintf("weir.jobs.ext.k%d", i%5), nil)
		if err != nil || ack.Sequence == 0 {
			t.Fatalf("job %d: %v %v", i, ack, err)
		}
	}
	r := &weirtest.Rig{T: t, API: api, JS: js, NC: nc, HeldUp: referee.MeasureHeldUp(t)}
	r.AwaitCalls(50)
	r.Eventually("50 results", func() bool { return r.Store().Messages("WEIR_RESULTS") == 50 })
	for _, w := range []*worker.Worker{intake, first, second} {
		w.Stop()
		if err := await.Result(t, "the end of the worker", w.Wait); err != nil {
			t.Error(err)
		}
	}
	// An orderly stop gives the lease up: the next one need not wait for it.
	start := time.Now()
	again, err := worker.Start(await.Context(t, "a worker to start"), program.ExternalSettings(t, server.ClientURL(), file, "again"), weirtest.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("took over in %s", time.Since(start))
	again.Stop()
	if err := await.Result(t, "the end of the worker", again.Wait); err != nil {
		t.Error(err)
	}
}

// TestSharedLimitsNeedOneCounter: a replica that would count a shared limit beside another that does is refused, and
// told what to do; so is a configuration that brings one into force.
func TestSharedLimitsNeedOneCounter(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start(t.Context(), embedded.Options{
		MaxStore: servers.Roomy,
		Listen:   "127.0.0.1:0", Dir: t.TempDir(), MaxPayload: 8 << 20, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	file := filepath.Join(t.TempDir(), "weir.yaml")
	text := "apis:\n  ext:\n    url: http://127.0.0.1:1\n    bucket: {rate: 200/s, capacity: 100}\n    limits: [{name: account, rate: 100/s}]\n"
	weirtest.WriteFile(t, file, text)
	first, err := worker.Start(await.Context(t, "a worker to start"), program.ExternalSettings(t, server.ClientURL(), file, "first"), weirtest.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	_, err = worker.Start(await.Context(t, "a worker to start"), program.ExternalSettings(t, server.ClientURL(), file, "second"), weirtest.TestLog(t))
	for _, want := range []string{"first", "limit account of api ext", "WEIR_REDIS_URL"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the second one was refused without saying %q: %v", want, err)
		}
	}
	first.Stop()
	if err := await.Result(t, "the end of the worker", first.Wait); err != nil {
		t.Error(err)
	}
}
