package console

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// TestServerInsideAsksWho: with WEIR_NATS_AUTH=required, no client can use the embedded server without credentials from
// the data directory. Commands on the same directory find the operators' credentials by themselves. Credentials of a
// producer allow it to submit and to read, and nothing else.
func TestServerInsideAsksWho(t *testing.T) {
	t.Parallel()
	r := weirtest.ReadyRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, "apis:\n  pay: {url: %s, bucket: {rate: 100/s, capacity: 9}}\n")
	s := r.Settings()
	s.NATSAuth = environment.AuthRequired
	w, err := worker.Start(await.Context(t, "a worker to start"), s, weirtest.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		w.Stop()
		if err := await.Result(t, "the end of the worker", w.Wait); err != nil {
			t.Error(err)
		}
	}()
	if nc, err := nats.Connect(w.NATSURL(), nats.Timeout(await.Patience)); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("a connection without credentials: %v %v", nc, err)
	}
	for path, want := range map[string]int{"/api/v1/status": http.StatusUnauthorized, "/metrics": http.StatusUnauthorized, "/livez": http.StatusOK} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+w.HTTPAddr()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s without a token: %d, want %d", path, answer.StatusCode, want)
		}
	}
	address := strings.TrimPrefix(w.NATSURL(), "nats://")
	own := []string{"WEIR_NATS_LISTEN=" + address, "WEIR_DATA_DIR=" + s.DataDir}
	producer := []string{"WEIR_NATS_URL=" + w.NATSURL(), "WEIR_NATS_CREDS=" + filepath.Join(s.DataDir, "producer.creds")}
	operator := []string{"WEIR_NATS_URL=" + w.NATSURL(), "WEIR_NATS_CREDS=" + filepath.Join(s.DataDir, "operator.creds")}
	nobody := []string{"WEIR_NATS_LISTEN=" + address, "WEIR_DATA_DIR=" + t.TempDir()}
	for _, c := range []struct {
		who  string
		env  []string
		args string
		code int
		says string
	}{
		{"the producer", producer, "submit pay k --data x --wait", 0, ""},
		{"the producer", producer, "pause pay", cli.ExitFailed, "refuses"},
		{"the operator", own, "pause pay", 0, ""},
		{"the operator", own, "resume pay", 0, ""},
		{"the operator", operator, "config show", 0, "apis:"},
		{"nobody", nobody, "config show", cli.ExitUnreachable, "operator.creds"},
	} {
		if got := program.Command(t, c.env, strings.Fields(c.args)...); got.Code != c.code || !strings.Contains(got.Stdout+got.Stderr, c.says) {
			t.Errorf("%s: weir %s ended with %+v", c.who, c.args, got)
		}
	}
	if text, err := os.ReadFile(filepath.Join(s.DataDir, "operator.creds")); err != nil || !strings.Contains(string(text), "SEED") {
		t.Errorf("%v", err)
	}
}

// TestNoEndIsToldWhereWeirListens: a client that receives a result sees on which subject weir gets the acknowledgement
// of a write, and can guess the next one. If a job could have its end published there, weir would take an api's answer
// for the stream's.
func TestNoEndIsToldWhereWeirListens(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, "apis:\n  pay: {url: %s, bucket: {rate: 100/s, capacity: 9}}\n")
	heard, err := r.NC.SubscribeSync("weir.results.pay.k")
	if err != nil {
		t.Fatal(err)
	}
	if a := r.Producer().Submit("weir.jobs.pay.k", []byte("x"), nil); a.Error != nil {
		t.Fatal(a.Error)
	}
	m, err := heard.NextMsgWithContext(await.Context(t, "a result"))
	if err != nil {
		t.Fatal(err)
	}
	if a := r.Producer().Submit("weir.jobs.pay.k", []byte("x"), map[string]string{"Weir-Reply-To": m.Reply}); m.Reply == "" || a.Error == nil {
		t.Errorf("a job may have its end told on %q, where weir listens", m.Reply)
	}
}

// TestServerInsideByDefault: without credentials jobs get in, their ends are heard and everything is read; commands of weir's own user
// find the operators' credentials by the data directory, and by the server's address alone.
func TestServerInsideByDefault(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, "apis:\n  pay: {url: %s, bucket: {rate: 100/s, capacity: 9}}\nreply_to: [_INBOX.>, orders.done.>]\n")
	for _, subject := range []string{nats.NewInbox(), "orders.done.4"} {
		ends, err := r.NC.SubscribeSync(subject)
		if err != nil {
			t.Fatal(err)
		}
		if a := r.Producer().Submit("weir.jobs.pay.k", []byte("x"), map[string]string{"Weir-Reply-To": subject}); a.Error != nil {
			t.Fatalf("%+v", a)
		}
		if m, err := ends.NextMsg(weirtest.Patience); err != nil || m.Header.Get("Weir-Outcome") != "done" {
			t.Errorf("the end told on %s: %v %v", subject, m, err)
		}
		if a := r.Producer().Submit("weir.jobs.pay.k", []byte("x"), map[string]string{"Weir-Reply-To": subject, "Weir-Cost": "0"}); a.Letter == 0 {
			t.Fatalf("%+v", a)
		}
		if m, err := ends.NextMsg(weirtest.Patience); err != nil || m.Header.Get("Weir-Outcome") != "invalid" || m.Header.Get("Nats-Request-Info") != "" {
			t.Errorf("the letter told on %s: %v %v", subject, m, err)
		}
	}
	if a := r.Producer().Submit("weir.jobs.pay.k", nil, map[string]string{"Weir-Reply-To": "mine"}); a.Error == nil || !strings.Contains(a.Error.Description, "reply_to") {
		t.Errorf("a subject that is not open: %+v", a)
	}
	creds := filepath.Join(r.Dir, "data", "operator.creds")
	if info, err := os.Stat(creds); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	url := "WEIR_NATS_URL=" + r.Worker.NATSURL()
	listen := "WEIR_NATS_LISTEN=" + strings.TrimPrefix(r.Worker.NATSURL(), "nats://")
	check := func(who string, env []string, args string, code int, says string) {
		t.Helper()
		if got := program.Command(t, env, strings.Fields(args)...); got.Code != code || !strings.Contains(got.Stdout+got.Stderr, says) {
			t.Errorf("%s: weir %s ended with %+v", who, args, got)
		}
	}
	check("by the data directory", []string{listen, "WEIR_DATA_DIR=" + filepath.Dir(creds)}, "pause pay", 0, "")
	check("by the address", []string{url}, "resume pay", 0, "")
	check("by the address", []string{listen}, "dead purge 1 --yes", 0, "")
	if err := os.Rename(creds, creds+".away"); err != nil { // as if the file were unreadable
		t.Fatal(err)
	}
	for _, args := range []string{"submit pay k --data x --wait", "config show", "dead ls", "dead stats", "verify"} {
		check("somebody else", []string{url}, args, 0, "")
	}
	check("somebody else", []string{url}, "keys pay", cli.ExitNotFound, "no job waits")
	for _, args := range []string{"pause pay", "config rollback --yes 1", "dead purge 2 --yes"} {
		check("somebody else", []string{url}, args, cli.ExitFailed, "operator.creds")
	}
}

// TestWorkerBesideServerInside: a second weir at the server inside a first one finds the operators' credentials, too, and tells ends to
// producers without any.
func TestWorkerBesideServerInside(t *testing.T) {
	t.Parallel()
	r := weirtest.ReadyRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, `
apis:
  pay: {url: %s, bucket: {rate: 100/s, capacity: 9}}
dead_letters: {max_bytes: 64MiB}
`)
	r.Start() // creates every stream as large as the disk allows, which the second weir does not know
	r.Stop()
	s := r.Settings()
	s.Roles = []environment.Role{environment.RoleIngest}
	first, err := worker.Start(await.Context(t, "a worker to start"), s, weirtest.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { first.Stop(); _ = await.Result(t, "the end of the worker", first.Wait) }()
	second, err := worker.Start(await.Context(t, "a worker to start"), program.ExternalSettings(t, first.NATSURL(), s.Config, "second", environment.RoleDispatch), weirtest.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { second.Stop(); _ = await.Result(t, "the end of the worker", second.Wait) }()
	if r.NC, err = nats.Connect(first.NATSURL(), nats.Timeout(await.Patience)); err != nil {
		t.Fatal(err)
	}
	defer r.NC.Close()
	inbox := nats.NewInbox()
	ends, err := r.NC.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	if a := r.Producer().Submit("weir.jobs.pay.k", []byte("x"), map[string]string{"Weir-Reply-To": inbox}); a.Error != nil {
		t.Fatalf("%+v", a)
	}
	if m, err := ends.NextMsg(weirtest.Patience); err != nil || m.Header.Get("Weir-Outcome") != "done" {
		t.Errorf("the end told by a second weir: %v %v", m, err)
	}
}

// TestCommandsOutliveTheirCredentials: if weir required credentials earlier and does not any more, commands that find
// the old ones still connect.
func TestCommandsOutliveTheirCredentials(t *testing.T) {
	t.Parallel()
	r := weirtest.ReadyRig(t, fakeapi.Options{}, "apis:\n  pay: {url: %s, bucket: {rate: 100/s, capacity: 9}}\n")
	for _, auth := range []environment.NATSAuth{environment.AuthRequired, environment.AuthOperators, environment.AuthOpen} {
		s := r.Settings()
		s.NATSAuth = auth
		w, err := worker.Start(await.Context(t, "a worker to start"), s, weirtest.TestLog(t))
		if err != nil {
			t.Fatal(err)
		}
		env := []string{"WEIR_NATS_LISTEN=" + strings.TrimPrefix(w.NATSURL(), "nats://"), "WEIR_DATA_DIR=" + s.DataDir}
		if got := program.Command(t, env, "config", "show"); got.Code != 0 {
			t.Errorf("%s: %+v", auth, got)
		}
		w.Stop()
		if err := await.Result(t, "the end of the worker", w.Wait); err != nil {
			t.Error(err)
		}
	}
}
