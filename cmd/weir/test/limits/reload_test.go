package limits

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestReloadIsForAllReplicas: one of them reads its file anew, and the other follows. What was applied since stays where the file
// is not another.
func TestReloadIsForAllReplicas(t *testing.T) {
	t.Parallel()
	r, url := newSharedRig(t, fmt.Sprintf(oneAPI, "10/s"))
	file := filepath.Join(t.TempDir(), "weir.yaml")
	weirtest.WriteFile(t, file, r.YAML)
	second, err := worker.Start(t.Context(), program.ExternalSettings(t, url, file, "second"), weirtest.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { second.Stop(); _ = await.Result(t, "the second worker to stop", second.Wait) }()
	events := len(r.Store().ConfigEvents())

	r.ApplyConfig(fmt.Sprintf(oneAPI, "20/s"))
	r.Eventually("what was applied", func() bool { return second.ConfigState().Version == 2 })
	if err := second.ReloadNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v, _, err := r.ConfigStore().Newest(t.Context()); err != nil || v.Number != 2 {
		t.Errorf("a file that has not changed made version %d: %v", v.Number, err)
	}
	weirtest.WriteFile(t, file, strings.Replace(r.YAML, "10/s", "30/s", 1))
	second.Reload(func() {})
	r.Eventually("both to follow", func() bool {
		return second.ConfigState().Version == 3 && r.Worker.ConfigState().Version == 3
	})
	v, _, err := r.ConfigStore().Newest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := grammar.FormatRate(v.Config.APIs[0].Rules.Key.Rate); got != "30/s" {
		t.Errorf("the rate in force is %s", got)
	}
	r.Eventually("its event", func() bool { return len(r.Store().ConfigEvents()) > events })
	if e := r.Store().ConfigEvents()[events]; e.OldVersion != 2 || e.NewVersion != 3 || e.Changes != 1 || e.From != file {
		t.Errorf("the event says %+v", e)
	}
}

// TestReloadThatCannotBe changes nothing and says why: a file that is wrong or not there, a limit that keeps its name and not
// its unit, a secret that is missing, and a weir that has no file.
func TestReloadThatCannotBe(t *testing.T) {
	t.Parallel()
	const day = "    price: 0.01\n    limits: [{name: day, %s}]\n"
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, fmt.Sprintf(oneAPI, "100/s")+fmt.Sprintf(day, "quota: 1000/day"))
	r.Stop()
	log := &program.Book{}
	settings := r.Settings()
	w, err := worker.Start(t.Context(), settings, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { w.Stop(); _ = await.Result(t, "the worker to stop", w.Wait) }()
	file := settings.Config
	present := w.ConfigState().Version
	for text, wants := range map[string][]string{
		"apis: {pay: {url: nowhere, bucket: {rate: 1/fortnight, capacity: 1}}}": {"apis.pay.url", "apis.pay.bucket.rate"},
		r.YAML + "    headers: {X: \"${env:WEIR_TEST_NO_SUCH_SECRET}\"}\n":      {"WEIR_TEST_NO_SUCH_SECRET"},
		strings.Replace(r.YAML, "quota: 1000/day", "budget: 5.00/day", 1):       {"apis.pay.limits.day", "another name"},
	} {
		weirtest.WriteFile(t, file, text)
		err := w.ReloadNow(t.Context())
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v\ndoes not say %q", text, err, want)
			}
		}
	}
	settings.Config = filepath.Join(r.Dir, "none.yaml")
	w.Reload(func() {})
	r.Eventually("the log to say so", func() bool { return strings.Contains(log.String(), "the configuration file was not applied") })
	settings.Config = ""
	if err := w.ReloadNow(t.Context()); err != nil || !strings.Contains(log.String(), "no configuration file") {
		t.Errorf("without a file: %v\n%s", err, log.String())
	}
	if got := w.ConfigState().Version; got != present {
		t.Errorf("version %d is in force, want %d", got, present)
	}
}

// TestReloadFindsSecrets: a rotated secret is used by the next call, and a missing one is reported.
func TestReloadFindsSecrets(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	weirtest.WriteFile(t, secret, "first")
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}},
		fmt.Sprintf(oneAPI, "100/s")+"    headers: {X-Secret: \"${file:"+secret+"}\"}\n")
	r.Producer().SubmitMany("pay", "k", 1)
	r.AwaitCalls(1)
	weirtest.WriteFile(t, secret, "second")
	if err := r.Worker.ReloadNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Producer().SubmitMany("pay", "k", 1)
	for i, want := range []string{"first", "second"} {
		if got := r.AwaitCalls(2)[i].Header("X-Secret"); got != want {
			t.Errorf("call %d has the secret %s, want %s", i, got, want)
		}
	}
	weirtest.WriteFile(t, secret, "")
	if err := r.Worker.ReloadNow(t.Context()); err == nil || !strings.Contains(err.Error(), secret) {
		t.Errorf("a secret that is empty: %v", err)
	}
}

// deniedRig starts a weir whose api denies it as long as the file of its secret says "first".
func deniedRig(t *testing.T) (r *weirtest.Rig, secret string) {
	t.Helper()
	secret = filepath.Join(t.TempDir(), "secret")
	weirtest.WriteFile(t, secret, "first")
	r = weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}, Script: func(_ context.Context, q *fakeapi.Request) fakeapi.Behaviour {
		if q.Header.Get("X-Secret") == "first" {
			return fakeapi.Behaviour{Status: 401}
		}
		return fakeapi.Behaviour{}
	}}, fmt.Sprintf(oneAPI, "100/s")+"    headers: {X-Secret: \"${file:"+secret+"}\"}\n    retry: {min: 1h, max: 1h}\n")
	return r, secret
}

// TestReloadTriesWhoDeniedWeir: an api that denied weir is tried at once when its secret was rotated, though the file is the same.
func TestReloadTriesWhoDeniedWeir(t *testing.T) {
	t.Parallel()
	r, secret := deniedRig(t)
	r.Producer().SubmitMany("pay", "k", 1)
	r.Eventually("a call to be denied", func() bool { return len(r.Store().Ledger("pay", "k")) == 1 })
	if err := r.Worker.ReloadNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Eventually("a try with the same secret", func() bool { return len(r.Store().Ledger("pay", "k")) == 2 })
	weirtest.WriteFile(t, secret, "second")
	if err := r.Worker.ReloadNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Eventually("a call that is accepted", func() bool { return len(r.Store().Results("pay", "k")) == 1 })
	if n := len(r.API.All()); n != 3 {
		t.Errorf("%d calls were made, want two that were denied and one", n)
	}
}

// TestLostSecretHoldsTheAPI checks that jobs whose api's secret cannot be read wait, and none becomes a letter. They
// are called once the secret is back.
func TestLostSecretHoldsTheAPI(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	weirtest.WriteFile(t, secret, "first")
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}},
		fmt.Sprintf(oneAPI, "100/s")+"    headers: {X-Secret: \"${file:"+secret+"}\"}\n    retry: {attempts: 1, min: 10ms, max: 20ms}\n")
	weirtest.WriteFile(t, secret, "")
	r.Producer().SubmitMany("pay", "k", 3)
	r.Eventually("a call that was not sent", func() bool { return len(r.Store().Ledger("pay", "k")) > 0 })
	if c := r.Store().Ledger("pay", "k")[0]; c.Outcome != "denied" || c.Sent || !strings.Contains(c.Detail, secret) {
		t.Errorf("without its secret a call ended as %s, sent %v: %s", c.Outcome, c.Sent, c.Detail)
	}
	weirtest.WriteFile(t, secret, "second")
	for _, call := range r.AwaitCalls(3) {
		if got := call.Header("X-Secret"); got != "second" {
			t.Errorf("a call has the secret %q", got)
		}
	}
	if n := len(r.Store().Letters("pay", "k")); n != 0 {
		t.Errorf("%d jobs became letters", n)
	}
}

// TestReloadWithoutItsFileTriesWhoDeniedWeir: an api that denied weir is tried, once for each reload, also when the file is wrong,
// when it is not there, and when weir has none. The answer to the last try ends the hold.
func TestReloadWithoutItsFileTriesWhoDeniedWeir(t *testing.T) {
	t.Parallel()
	r, secret := deniedRig(t)
	r.Stop()
	settings := r.Settings()
	w, err := worker.Start(t.Context(), settings, weirtest.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { w.Stop(); _ = await.Result(t, "the worker to stop", w.Wait) }()
	if r.NC, err = nats.Connect(w.NATSURL(), nats.Timeout(await.Patience)); err != nil {
		t.Fatal(err)
	}
	defer r.NC.Close()
	if r.JS, err = jetstream.New(r.NC); err != nil {
		t.Fatal(err)
	}
	r.Producer().SubmitMany("pay", "k", 1)
	calls := func(n int) func() bool { return func() bool { return len(r.Store().Ledger("pay", "k")) == n } }
	r.Eventually("a call to be denied", calls(1))

	weirtest.WriteFile(t, settings.Config, "apis: nothing")
	if err := w.ReloadNow(t.Context()); err == nil {
		t.Fatal("a file that is wrong was put in force")
	}
	r.Eventually("a try by a file that is wrong", calls(2))
	settings.Config = filepath.Join(r.Dir, "none.yaml")
	if err := w.ReloadNow(t.Context()); err == nil {
		t.Fatal("a file that is not there was put in force")
	}
	r.Eventually("a try by a file that is not there", calls(3))
	settings.Config = ""
	weirtest.WriteFile(t, secret, "second")
	if err := w.ReloadNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Eventually("a call that is accepted", func() bool { return len(r.Store().Results("pay", "k")) == 1 })
	if n := len(r.API.All()); n != 4 {
		t.Errorf("%d calls were made, want three that were denied and one", n)
	}
}
