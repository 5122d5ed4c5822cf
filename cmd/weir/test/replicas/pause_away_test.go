package replicas

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
)

// TestPausesThatAreGoneWhenTheServerIsBack: pauses that were deleted while a replica was disconnected from a stopped
// server end when the connection is back. One of them leaves no trace, so a watch that resumes at its old position
// cannot report it.
func TestPausesThatAreGoneWhenTheServerIsBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ns := natstest.Start(t, dir, 0)
	port := natstest.Port(t, ns)
	api, err := fakeapi.Start(fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	file := filepath.Join(t.TempDir(), "weir.yaml")
	weirtest.WriteFile(t, file, fmt.Sprintf("apis:\n  pay:\n    url: %s\n    bucket: {rate: 10/s, capacity: 100}\n", api.URL()))
	w, err := worker.Start(await.Context(t, "a worker to start"), program.ExternalSettings(t, ns.ClientURL(), file, "away"), weirtest.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	r := weirtest.RigBeside(t, w, api)
	keys := []string{"stays", "deleted", "purged"}
	for _, key := range keys {
		r.PutPause(key)
	}

	stop := func() { ns.Shutdown(); ns.WaitForShutdown() }
	stop()
	ns = natstest.Start(t, dir, 0) // where the replica does not look for it
	js := natstest.Connect(t, ns)
	kv, err := js.KeyValue(t.Context(), connect.ControlBucket)
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Delete(t.Context(), admin.PauseEntry("pay", "deleted")); err != nil {
		t.Fatal(err)
	}
	bucket, err := js.Stream(t.Context(), "KV_"+connect.ControlBucket)
	if err != nil {
		t.Fatal(err)
	}
	if err := bucket.Purge(t.Context(), jetstream.WithPurgeSubject("$KV."+connect.ControlBucket+"."+admin.PauseEntry("pay", "purged"))); err != nil {
		t.Fatal(err)
	}
	stop()
	natstest.Start(t, dir, port)
	back := time.Now()
	await.Until(t, "the pauses that are gone to end", func() bool { return len(w.Parts().Dispatcher.Desk.Pauses("pay")) == 1 })
	t.Logf("the pauses ended %s after the server was back", time.Since(back).Round(time.Millisecond))
	if _, paused := w.Parts().Dispatcher.Desk.Pauses("pay")["stays"]; !paused {
		t.Error("the pause that is there has ended")
	}
	r.Stop() // before its server
}
