package replicas

import (
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestMoveBack moves jobs away from a server and back to it. Then weir starts there, and only there.
func TestMoveBack(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, moveShortYAML)
	r.Producer().Submit("weir.jobs.pay.k", nil, nil)
	r.AwaitCalls(1)
	r.Stop()
	here, there := servers.StartTarget(t), servers.StartTarget(t)
	move := func(from, to string) program.Ended {
		t.Helper()
		return program.Command(t, []string{"WEIR_REPLICAS=1"}, "move", "--from", from, "--to", to)
	}
	for _, way := range [][2]string{{filepath.Join(r.Dir, "data"), here}, {here, there}} {
		if got := move(way[0], way[1]); got.Code != 0 {
			t.Fatalf("%v: %+v", way, got)
		}
	}
	if got := move(there, here); got.Code != cli.ExitRefused || !strings.Contains(got.Stderr, "streams of weir, the first is") {
		t.Fatalf("onto what was left behind: %+v", got)
	}
	nc, err := nats.Connect(here)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	lister := js.StreamNames(t.Context())
	var names []string
	for name := range lister.Name() {
		if name != "KV_weir_move" {
			names = append(names, name)
		}
	}
	if err := lister.Err(); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if got := move(there, here); got.Code != 0 {
		t.Fatalf("back: %+v", got)
	}
	start := func(url string) (*worker.Worker, error) {
		return worker.Start(await.Context(t, "a worker to start"), program.ExternalSettings(t, url, filepath.Join(r.Dir, "weir.yaml"), "back"), weirtest.TestLog(t))
	}
	if w, err := start(there); err == nil || !strings.Contains(err.Error(), "were moved to") {
		t.Errorf("weir starts where the jobs were: %v, %v", w, err)
	}
	w, err := start(here)
	if err != nil {
		t.Fatal(err)
	}
	r = weirtest.RigBeside(t, w, r.API)
	r.Producer().Submit("weir.jobs.pay.k", nil, nil)
	r.Eventually("two results", func() bool { return r.Store().Messages("WEIR_RESULTS") == 2 })
}
