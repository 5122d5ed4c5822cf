package intake

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/foreign"
	"weir/cmd/weir/internal/serve/embedded"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestStartRefusedByAForeignStream: a stream that takes jobs answers their producers before weir does. A start beside one is
// refused, and says which stream it is and what to do.
func TestStartRefusedByAForeignStream(t *testing.T) {
	t.Parallel()
	for _, subject := range []string{"weir.jobs.>", "weir.>", ">", "*.jobs.>", "weir.*.pay.>", "weir.jobs.pay.*", "weir.jobs.pay", "weir.jobs.other.k"} {
		t.Run(subject, func(t *testing.T) {
			url, js := servers.PlainServer(t)
			wide := strings.Contains(">*", subject[:1]) // the server lets those acknowledge nothing
			if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "THEIRS", Subjects: []string{subject}, NoAck: wide}); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "weir.yaml")
			weirtest.WriteFile(t, file, weirtest.UnreachableAPI)
			w, err := worker.Start(t.Context(), program.ExternalSettings(t, url, file, "w"), weirtest.TestLog(t))
			if err == nil {
				w.Stop()
				_ = await.Result(t, "the worker to stop", w.Wait)
				t.Fatal("the worker starts")
			}
			for _, want := range []string{"THEIRS", subject, "weir.jobs.>", "change its subjects or remove it"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\ndoes not say %q", err, want)
				}
			}
			if _, err := js.Stream(t.Context(), "WEIR_DEAD"); err == nil {
				t.Error("a start that is refused has made streams")
			}
		})
	}
}

// TestStartBesideStreamsThatDoNotListen: copies of weir's own streams, and streams of other subjects, answer no job.
func TestStartBesideStreamsThatDoNotListen(t *testing.T) {
	t.Parallel()
	url, js := servers.PlainServer(t)
	for _, cfg := range []jetstream.StreamConfig{
		{Name: "ORDERS", Subjects: []string{"orders.>", "weir.job.>", "weir.jobsx.>"}},
		{Name: "COPY", Mirror: &jetstream.StreamSource{Name: "ORDERS"}},
		{Name: "TURNED", Sources: []*jetstream.StreamSource{{Name: "ORDERS", SubjectTransforms: []jetstream.SubjectTransformConfig{
			{Source: "orders.>", Destination: "weir.jobs.>"},
		}}}},
	} {
		if _, err := js.CreateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := js.Publish(t.Context(), "orders.one", nil); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "weir.yaml")
	weirtest.WriteFile(t, file, weirtest.UnreachableAPI)
	w, err := worker.Start(t.Context(), program.ExternalSettings(t, url, file, "w"), weirtest.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	if err := await.Result(t, "the worker to stop", w.Wait); err != nil {
		t.Error(err)
	}
}

// TestSubmitIsNotTakenInByAForeignStream: the acknowledgement of a stream is no receipt, whether weir runs beside it or not.
func TestSubmitIsNotTakenInByAForeignStream(t *testing.T) {
	t.Parallel()
	url, js := servers.PlainServer(t)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "THEIRS", Subjects: []string{"weir.jobs.>"}, MaxMsgs: 2, Discard: jetstream.DiscardNew,
	}); err != nil {
		t.Fatal(err)
	}
	for i, args := range []string{"", "--json", "--wait --timeout 1s"} { // it acknowledges two, and refuses the third
		got := program.Command(t, []string{"WEIR_NATS_URL=" + url}, append([]string{"submit", "pay", "vip", "--id", fmt.Sprint(i)}, strings.Fields(args)...)...)
		if got.Code != cli.ExitFailed && got.Code != cli.ExitUnreachable || got.Stdout != "" {
			t.Errorf("submit %s ended with %+v", args, got)
		}
		for _, want := range []string{"stream THEIRS", "weir.jobs.>"} {
			if !strings.Contains(got.Stderr, want) {
				t.Errorf("submit %s: %s\ndoes not say %q", args, got.Stderr, want)
			}
		}
	}
}

// health reads the next event of a kind, and what it tells.
func health(t *testing.T, events *nats.Subscription) (kind string, data foreign.HealthData) {
	t.Helper()
	msg, err := events.NextMsg(weirtest.Patience)
	if err != nil {
		t.Fatalf("no event: %v", err)
	}
	var e struct {
		Type string
		Data foreign.HealthData
	}
	if err := json.Unmarshal(msg.Data, &e); err != nil {
		t.Fatal(err)
	}
	if want := "weir.events." + strings.Split(e.Type, ".")[1] + "._._"; msg.Subject != want {
		t.Errorf("the event is on %s, want %s", msg.Subject, want)
	}
	return e.Type, e.Data
}

// TestForeignStreamWhileRunning: one that comes makes weir not ready and is named in the log, by an event and by the metric, once;
// jobs are still taken and called. When it has gone weir is ready by itself.
func TestForeignStreamWhileRunning(t *testing.T) {
	t.Parallel()
	url, js := servers.PlainServer(t)
	api, err := fakeapi.Start(fakeapi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	file := filepath.Join(t.TempDir(), "weir.yaml")
	weirtest.WriteFile(t, file, fmt.Sprintf("apis:\n  pay:\n    url: %s\n    bucket: {rate: 100/s, capacity: 9}\n", api.URL()))
	log := &program.Book{}
	w, err := worker.Start(t.Context(), program.ExternalSettings(t, url, file, "w"), slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	r := &weirtest.Rig{T: t, API: api, JS: js, NC: js.Conn(), Worker: w}
	defer func() { w.Stop(); _ = await.Result(t, "the worker to stop", w.Wait) }()
	events, err := r.NC.SubscribeSync("weir.events.*._._")
	if err != nil {
		t.Fatal(err)
	}
	state := func(ready string, streams, lines int) {
		t.Helper()
		r.Eventually("/readyz to answer "+ready, func() bool { // it answers a second long what it answered last
			got := r.HTTP().Get("/readyz")
			return strings.HasPrefix(got, ready) && (streams == 0 || strings.Contains(got, "THEIRS"))
		})
		if got := r.HTTP().Get("/metrics"); !strings.Contains(got, fmt.Sprintf("\nweir_foreign_streams %d\n", streams)) {
			t.Errorf("the metric does not say %d", streams)
		}
		if n := strings.Count(log.String(), `msg="not ready"`); n != lines {
			t.Errorf("%d errors in the log, want %d:\n%s", n, lines, log.String())
		}
	}
	look := func() { w.Parts().Foreign.Look(t.Context()) }
	look()
	state("200", 0, 0)
	theirs, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "THEIRS", Subjects: []string{"weir.jobs.pay.>"}})
	if err != nil {
		t.Fatal(err)
	}
	look()
	look()
	state("503", 1, 1)
	if kind, data := health(t, events); kind != "weir.unhealthy.v1" || len(data.Streams) != 1 || data.Streams[0].Name != "THEIRS" ||
		data.Instance != "w" || !strings.Contains(data.Why, "weir.jobs.pay.>") {
		t.Errorf("the event %s tells %+v", kind, data)
	}
	if err := r.NC.Publish("weir.jobs.pay.k", nil); err != nil { // stored there, and here
		t.Fatal(err)
	}
	r.AwaitCalls(1)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"weir.jobs.sms"}}); err != nil {
		t.Fatal(err)
	}
	look()
	state("503", 2, 2)
	if kind, data := health(t, events); kind != "weir.unhealthy.v1" || len(data.Streams) != 2 {
		t.Errorf("the event %s tells %+v", kind, data)
	}
	cfg := theirs.CachedInfo().Config
	cfg.Subjects = []string{"theirs"}
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), "OTHER"); err != nil {
		t.Fatal(err)
	}
	look()
	state("200", 0, 2)
	if kind, data := health(t, events); kind != "weir.healthy.v1" || len(data.Streams) != 0 {
		t.Errorf("the event %s tells %+v", kind, data)
	}
	if !strings.Contains(log.String(), "ready again") {
		t.Error("the log does not say that all is well again")
	}
}

// TestForeignStreamInside: the server inside weir stops with the start that is refused, and it is said how to get at the stream.
func TestForeignStreamInside(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, "apis:\n  pay:\n    url: %s\n    bucket: {rate: 100/s, capacity: 9}\n")
	servers.Occupy(t, r.Worker.NATSURL(), "weir.jobs.>")
	r.Stop()
	_, err := worker.Start(t.Context(), r.Settings(), weirtest.TestLog(t))
	if want := "weir nats-server --dir " + filepath.Join(r.Dir, "data"); err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("%v\ndoes not say %q", err, want)
	}
	ns, err := embedded.Start(t.Context(), embedded.Options{
		MaxStore: servers.Roomy,
		Listen:   "127.0.0.1:0", Dir: filepath.Join(r.Dir, "data"), MaxPayload: 8 << 20, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(ns.ClientURL(), nats.Timeout(await.Patience))
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), "THEIRS"); err != nil {
		t.Error(err)
	}
	nc.Close()
	ns.Shutdown()
	r.Start()
}

// TestForeignStreamsThatMayNotBeLookedFor: where the server neither tells a user's rights nor lets it list streams, weir starts,
// and says once what it cannot know. Where only their subjects are kept from it, it names them.
func TestForeignStreamsThatMayNotBeLookedFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ denied, refusal string }{
		"names":    {`"$JS.API.STREAM.NAMES"`, ""},
		"subjects": {`"$JS.API.STREAM.INFO.THEIRS"`, "THEIRS"},
	} {
		t.Run(name, func(t *testing.T) {
			conf := filepath.Join(t.TempDir(), "nats.conf")
			weirtest.WriteFile(t, conf, fmt.Sprintf("jetstream {store_dir: %q}\naccounts {A {jetstream: enabled, users: [{user: all, password: p}, {user: u, password: p, permissions {publish {deny: [%q, %s]}}}]}}\n",
				t.TempDir(), "$SYS.REQ.USER.INFO", c.denied))
			opts, err := server.ProcessConfigFile(conf)
			if err != nil {
				t.Fatal(err)
			}
			opts.Host, opts.Port, opts.NoSigs, opts.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
			ns := servers.StartNATS(t, opts)
			servers.Occupy(t, "nats://all:p@"+ns.Addr().String(), "weir.jobs.>")
			file := filepath.Join(t.TempDir(), "weir.yaml")
			weirtest.WriteFile(t, file, weirtest.UnreachableAPI)
			log := &program.Book{}
			w, err := worker.Start(t.Context(), program.ExternalSettings(t, "nats://u:p@"+ns.Addr().String(), file, "w"), slog.New(slog.NewTextHandler(log, nil)))
			if c.refusal != "" {
				if err == nil || !strings.Contains(err.Error(), c.refusal) {
					t.Errorf("%v does not say %q", err, c.refusal)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			w.Parts().Foreign.Look(ctx)
			cancel()
			if n := strings.Count(log.String(), "cannot check whether a foreign stream takes jobs"); n != 1 {
				t.Errorf("the log says %d times what cannot be known:\n%s", n, log.String())
			}
			w.Stop()
			if err := await.Result(t, "the worker to stop", w.Wait); err != nil {
				t.Error(err)
			}
		})
	}
}
