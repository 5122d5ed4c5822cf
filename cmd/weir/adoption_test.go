package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/control"
	"weir/cmd/weir/internal/embedded"
	"weir/ingest/await"
)

// newSharedRig is a rig whose worker runs on a server of somebody else's, so that another can start beside it.
func newSharedRig(t *testing.T, yaml string) (r *rig, url string) {
	t.Helper()
	server, err := embedded.Start(t.Context(), embedded.Options{
		Listen: "127.0.0.1:0", Dir: t.TempDir(), MaxPayload: 8 << 20, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	r, url = readyRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, yaml), server.ClientURL()
	file := filepath.Join(r.dir, "weir.yaml")
	writeFile(t, file, r.yaml)
	if r.worker, err = StartWorker(await.Context(t, "a worker to start"), externalSettings(t, url, file, "first"), testLog(t)); err != nil {
		t.Fatal(err)
	}
	if r.nc, err = nats.Connect(url); err != nil {
		t.Fatal(err)
	}
	if r.js, err = jetstream.New(r.nc); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.stop)
	return r, url
}

// TestRefusedStartChangesNothing: the file of a weir that does not start is in force nowhere, and its streams keep what
// they hold as long as before; that of one that starts is, and is told of.
func TestRefusedStartChangesNothing(t *testing.T) {
	const yaml = "apis:\n  pay:\n    url: %%s\n    bucket: {rate: %s, capacity: 100}\n%sdead_letters: {max_age: %s}\n"
	r, url := newSharedRig(t, fmt.Sprintf(yaml, "10/s", "", "30d"))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	second := func(rate, more string, change func(s *config.Settings)) (*Worker, error) {
		file := filepath.Join(t.TempDir(), "second.yaml")
		writeFile(t, file, fmt.Sprintf(fmt.Sprintf(yaml, rate, more, "1d"), r.api.URL()))
		s := externalSettings(t, url, file, "second")
		change(s)
		return StartWorker(await.Context(t, "a worker to start"), s, testLog(t))
	}
	asIs := func(*config.Settings) {}
	for name, start := range map[string]func() (*Worker, error){
		"a secret that is missing": func() (*Worker, error) {
			return second("100/s", "    headers: {X: \"${env:WEIR_TEST_NO_SUCH_SECRET}\"}\n", asIs)
		},
		"a shared limit and no counter": func() (*Worker, error) { return second("100/s", "    limits: [{name: all, rate: 9/s}]\n", asIs) },
		"an address that is taken": func() (*Worker, error) {
			return second("100/s", "", func(s *config.Settings) { s.HTTPListen = taken.Addr().String() })
		},
		"an address without a token": func() (*Worker, error) {
			return second("100/s", "", func(s *config.Settings) { s.HTTPListen = "0.0.0.0:0" })
		},
	} {
		w, err := start()
		if err == nil {
			w.Stop()
			_ = await.Result(t, "the end of the worker", w.Wait)
			t.Fatalf("%s does not keep it from starting", name)
		}
		t.Log(err)
		current, last, err := r.configStore().Newest(t.Context())
		if err != nil || current.Number != 1 || last != 1 {
			t.Errorf("%s: the newest version is %d of %d, %v", name, current.Number, last, err)
		}
	}
	letters := func() time.Duration {
		s, err := r.js.Stream(t.Context(), "WEIR_DEAD")
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
	r.eventually("the new file to be followed", func() bool { return r.worker.follower.version.Load() == 2 })
	if events := r.configEvents(); len(events) != 2 || events[1].OldVersion != 1 || events[1].NewVersion != 2 || events[1].Changes != 2 {
		t.Errorf("the events are %+v", events)
	}
	if got := letters(); got != 24*time.Hour {
		t.Errorf("letters are kept for %s, want 1d", got)
	}
}

// TestRefusedStartCallsNobody: not even for jobs that wait since the last run.
func TestRefusedStartCallsNobody(t *testing.T) {
	const limit = "    limits: [{name: all, rate: 1/24h}]\n"
	r := newRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, fmt.Sprintf(oneAPI, "100/s")+limit)
	for i := range 40 {
		r.submitMany("pay", fmt.Sprintf("k%d", i), 1)
	}
	r.awaitCalls(1)
	r.stop()
	r.yaml = strings.ReplaceAll(r.yaml, limit, "") // now all may be called at once
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := r.settings()
	s.HTTPListen = taken.Addr().String()
	for range 20 {
		if _, err := StartWorker(await.Context(t, "a worker to start"), s, testLog(t)); err == nil || !strings.Contains(err.Error(), "WEIR_HTTP_LISTEN") {
			t.Fatalf("started on an address that is taken: %v", err)
		}
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(r.api.All()); n != 1 {
		t.Errorf("starts that were refused made %d calls", n-1)
	}
	r.start()
	r.awaitCalls(40)
}

// TestAdoptionRace: what somebody applies between a start's look at the configuration and its own word stays.
func TestAdoptionRace(t *testing.T) {
	const before, mine, his = "1/s", "2/s", "3/s"
	r := newRig(t, fakeapi.Options{}, fmt.Sprintf(oneAPI, before))
	file := func(rate, sum string) *configFile {
		path := filepath.Join(t.TempDir(), "weir.yaml")
		writeFile(t, path, fmt.Sprintf(fmt.Sprintf(oneAPI, rate), r.api.URL()))
		f, err := readConfigFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f.sum = sum
		return f
	}
	home := r.configStore()
	begin := func(f *configFile) *adoption {
		a, err := adopt(t.Context(), home, f)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	rate := func() string {
		v, _, err := home.Newest(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return config.FormatRate(v.Config.APIs[0].Rules.Key.Rate)
	}

	late := begin(file(mine, "mine"))
	r.applyConfig(fmt.Sprintf(oneAPI, his))
	if told, err := late.store(t.Context()); !errors.Is(err, control.ErrLostRace) || told != nil || rate() != his {
		t.Errorf("a start put %s over what was applied meanwhile: %v, %v", rate(), told, err)
	}

	one, other := begin(file(mine, "mine")), begin(file(mine, "mine"))
	if told, err := one.store(t.Context()); err != nil || told == nil || told.Changes != 1 || rate() != mine {
		t.Errorf("the first start: %v, %v", told, err)
	}
	if told, err := other.store(t.Context()); err != nil || told != nil || other.present.Number != one.present.Number {
		t.Errorf("a start with the same file: %v, %v, version %d", told, err, other.present.Number)
	}

	spoilt := begin(file(before, "again"))
	if _, err := r.versions().Put(t.Context(), "current", []byte("no JSON at all")); err != nil {
		t.Fatal(err)
	}
	if told, err := spoilt.store(t.Context()); err != nil || told == nil || told.OldVersion != one.present.Number || rate() != before {
		t.Errorf("a start over what nobody can read: %+v, %v", told, err)
	}
}
