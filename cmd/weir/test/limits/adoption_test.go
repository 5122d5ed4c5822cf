package limits

import (
	"fmt"
	"log/slog"
	"net"
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
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// newSharedRig returns a rig whose worker uses an external server, so that another worker can start beside it.
func newSharedRig(t *testing.T, yaml string) (r *weirtest.Rig, url string) {
	t.Helper()
	server, err := embedded.Start(t.Context(), embedded.Options{
		MaxStore: servers.Roomy,
		Listen:   "127.0.0.1:0", Dir: t.TempDir(), MaxPayload: 8 << 20, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	r, url = weirtest.ReadyRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, yaml), server.ClientURL()
	file := filepath.Join(r.Dir, "weir.yaml")
	weirtest.WriteFile(t, file, r.YAML)
	if r.Worker, err = worker.Start(await.Context(t, "a worker to start"), program.ExternalSettings(t, url, file, "first"), weirtest.TestLog(t)); err != nil {
		t.Fatal(err)
	}
	if r.NC, err = nats.Connect(url, nats.Timeout(await.Patience)); err != nil {
		t.Fatal(err)
	}
	if r.JS, err = jetstream.New(r.NC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r, url
}

// TestRefusedStartChangesNothing: the file of a weir that fails to start never takes effect, and its streams keep their
// retention. The file of a weir that starts takes effect, and is reported.
func TestRefusedStartChangesNothing(t *testing.T) {
	t.Parallel()
	const yaml = "apis:\n  pay:\n    url: %%s\n    bucket: {rate: %s, capacity: 100}\n%sdead_letters: {max_age: %s}\n"
	r, url := newSharedRig(t, fmt.Sprintf(yaml, "10/s", "", "30d"))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	second := func(rate, more string, change func(s *environment.Settings)) (*worker.Worker, error) {
		file := filepath.Join(t.TempDir(), "second.yaml")
		weirtest.WriteFile(t, file, fmt.Sprintf(fmt.Sprintf(yaml, rate, more, "1d"), r.API.URL()))
		s := program.ExternalSettings(t, url, file, "second")
		change(s)
		return worker.Start(await.Context(t, "a worker to start"), s, weirtest.TestLog(t))
	}
	asIs := func(*environment.Settings) {}
	for name, start := range map[string]func() (*worker.Worker, error){
		"a secret that is missing": func() (*worker.Worker, error) {
			return second("100/s", "    headers: {X: \"${env:WEIR_TEST_NO_SUCH_SECRET}\"}\n", asIs)
		},
		"a shared limit and no counter": func() (*worker.Worker, error) { return second("100/s", "    limits: [{name: all, rate: 9/s}]\n", asIs) },
		"an address that is taken": func() (*worker.Worker, error) {
			return second("100/s", "", func(s *environment.Settings) { s.HTTPListen = taken.Addr().String() })
		},
		"an address without a token": func() (*worker.Worker, error) {
			return second("100/s", "", func(s *environment.Settings) { s.HTTPListen = "0.0.0.0:0" })
		},
	} {
		w, err := start()
		if err == nil {
			w.Stop()
			_ = await.Result(t, "the end of the worker", w.Wait)
			t.Fatalf("%s does not keep it from starting", name)
		}
		t.Log(err)
		current, last, err := r.ConfigStore().Newest(t.Context())
		if err != nil || current.Number != 1 || last != 1 {
			t.Errorf("%s: the newest version is %d of %d, %v", name, current.Number, last, err)
		}
	}
	letters := func() time.Duration {
		s, err := r.JS.Stream(t.Context(), "WEIR_DEAD")
		if err != nil {
			t.Fatal(err)
		}
		return s.CachedInfo().Config.MaxAge
	}
	if got := letters(); got != 30*24*time.Hour {
		t.Errorf("letters are kept for %s after starts that were refused", got)
	}
	w, err := second("20/s", "", asIs)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { w.Stop(); _ = await.Result(t, "the end of the worker", w.Wait) }()
	r.Eventually("the new file to be followed", func() bool { return r.Worker.ConfigState().Version == 2 })
	if events := r.Store().ConfigEvents(); len(events) != 2 || events[1].OldVersion != 1 || events[1].NewVersion != 2 || events[1].Changes != 2 {
		t.Errorf("the events are %+v", events)
	}
	if got := letters(); got != 24*time.Hour {
		t.Errorf("letters are kept for %s, want 1d", got)
	}
}

// TestRefusedStartCallsNobody: a refused start makes no call, not even for jobs that have waited since the last run.
func TestRefusedStartCallsNobody(t *testing.T) {
	t.Parallel()
	const limit = "    limits: [{name: all, rate: 1/24h}]\n"
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, fmt.Sprintf(oneAPI, "100/s")+limit)
	for i := range 40 {
		r.Producer().SubmitMany("pay", fmt.Sprintf("k%d", i), 1)
	}
	r.AwaitCalls(1)
	r.Stop()
	r.YAML = strings.ReplaceAll(r.YAML, limit, "") // now all may be called at once
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := r.Settings()
	s.HTTPListen = taken.Addr().String()
	for range 20 {
		if _, err := worker.Start(await.Context(t, "a worker to start"), s, weirtest.TestLog(t)); err == nil || !strings.Contains(err.Error(), "WEIR_HTTP_LISTEN") {
			t.Fatalf("started on an address that is taken: %v", err)
		}
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(r.API.All()); n != 1 {
		t.Errorf("starts that were refused made %d calls", n-1)
	}
	r.Start()
	r.AwaitCalls(40)
}

// TestConfigurationOfALaterVersion: a weir that cannot read the newest configuration does not go on by an earlier one, whose limits may be
// higher; it says so, and a file that has changed replaces it.
func TestConfigurationOfALaterVersion(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, fmt.Sprintf(oneAPI, "100/s"))
	r.ApplyConfig(strings.ReplaceAll(fmt.Sprintf(oneAPI, "1/s"), "    bucket:", "    of_a_later_version: 1\n    bucket:"))
	r.Stop()
	_, err := worker.Start(await.Context(t, "a start that is refused"), r.Settings(), weirtest.TestLog(t))
	if err == nil || !strings.Contains(err.Error(), "version 2, cannot be read by this version of weir") || !strings.Contains(err.Error(), "of_a_later_version") {
		t.Fatalf("the start ended with: %v", err)
	}
	r.YAML += "# changed\n"
	r.Start()
}
