package recovery

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/serve/embedded"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// TestRestoredStreams: weir's notes beside the streams reveal that streams of an external server were restored from a
// backup, and that a server has lost everything.
func TestRestoredStreams(t *testing.T) {
	t.Parallel()
	addr := servers.FreePort(t)
	store := filepath.Join(t.TempDir(), "nats")
	serverAt := func(dir string) (stop func()) {
		t.Helper()
		server, err := embedded.Start(t.Context(), embedded.Options{MaxStore: servers.Roomy, Listen: addr, Dir: dir, SyncAlways: true, MaxPayload: 1 << 20, Log: weirtest.TestLog(t)})
		if err != nil {
			t.Fatal(err)
		}
		return server.Shutdown
	}
	stop := serverAt(store)
	t.Cleanup(func() { stop() })
	api, err := fakeapi.Start(fakeapi.Options{Key: fakeapi.KeyFrom{Segment: 1}, KeepBody: 64})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	dir := t.TempDir()
	weirtest.WriteFile(t, filepath.Join(dir, "weir.yaml"), fmt.Sprintf("apis:\n  pay:\n    url: %s\n    bucket: {rate: 4/s, capacity: 100}\n", api.URL()))
	nc, err := nats.Connect("nats://"+addr, nats.Timeout(await.Patience), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	r := &weirtest.RestoreRig{KillRig: &weirtest.KillRig{T: t, API: api, NC: nc, Addr: addr, Acks: map[string]bool{}, Env: []string{
		"WEIR_CONFIG=" + filepath.Join(dir, "weir.yaml"), "WEIR_NATS_URL=nats://" + addr, "WEIR_REPLICAS=1", "WEIR_HTTP_LISTEN=",
		"WEIR_STATE_DIR=" + filepath.Join(dir, "state"), "WEIR_PARTITIONS=2",
	}}}
	t.Cleanup(func() { r.Proc.Kill() })
	r.MustRestart()
	for i := range 10 {
		r.Submit("pay", "k", fmt.Sprint("pay-", i))
	}
	r.AwaitCalls(2)
	r.Stop()
	stop()
	backup := store + ".backup"
	weirtest.CopyTree(t, store, backup)
	stop = serverAt(store)
	r.MustRestart()
	r.AwaitCalls(4)
	r.Proc.Kill()
	stop()
	stop = serverAt(store + ".empty")
	if err := r.Restart(); err == nil || !strings.Contains(err.Error(), "no weir was ever started on this store") {
		t.Fatalf("a start on a server that lost all ended with: %v", err)
	}
	stop()
	stop = serverAt(backup)
	called := len(r.API.All())
	if err := r.Restart(); err == nil || !strings.Contains(err.Error(), "weir was started 1 times on this store") {
		t.Fatalf("a start on restored streams ended with: %v", err)
	}
	r.MustRestart("--restored")
	await.Until(r.T, "the letters", func() bool { return r.Queued() == 0 })
	if n := len(r.API.All()); n != called {
		t.Errorf("%d calls were made after the restore", n-called)
	}
	r.Stop()
	r.MustRestart()
}
