package soak

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/nats/foreign"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"
)

// TestForeignStreamsAreLookedForAgainAndAgain: a worker looks for them regularly, without a request.
func TestForeignStreamsAreLookedForAgainAndAgain(t *testing.T) {
	t.Parallel()
	url, js := servers.PlainServer(t)
	file := filepath.Join(t.TempDir(), "weir.yaml")
	weirtest.WriteFile(t, file, weirtest.UnreachableAPI)
	w, err := worker.Start(t.Context(), program.ExternalSettings(t, url, file, "w"), weirtest.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { w.Stop(); _ = await.Result(t, "the worker to stop", w.Wait) }()
	if foreign.LookEvery > 30*time.Second {
		t.Errorf("it looks every %s: one look that fails and a minute is over", foreign.LookEvery)
	}
	servers.Occupy(t, url, "weir.jobs.>")
	r := &weirtest.Rig{T: t, JS: js}
	r.Eventually("the stream to be found", func() bool { return w.Ready(t.Context()) != nil })
	if err := w.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "THEIRS") {
		t.Errorf("it is not ready because: %v", err)
	}
}
