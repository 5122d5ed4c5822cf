package console

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// roleRig is a worker on a server with deploy's roles: one job is done, one is a letter.
type roleRig struct {
	*weirtest.Rig
	address func(user string) string
	file    string
}

func newRoleRig(t *testing.T) *roleRig {
	t.Helper()
	address := servers.RoleServer(t, filepath.Join(weirtest.Repository, "deploy", "nats", "accounts.conf"))
	api := weirtest.StartOrdered(t, map[string][]string{"bad": {"status=400", "status=400"}})
	file := filepath.Join(t.TempDir(), "weir.yaml")
	weirtest.WriteFile(t, file, fmt.Sprintf("apis:\n  pay:\n    url: %s\n    price: 0.10\n    bucket: {rate: 100/s, capacity: 2}\n    limits: [{name: all, rate: 200/s}]\n", api.URL()))
	s := program.WorkerSettings(t, address("worker"), file, "w")
	w, err := worker.Start(await.Context(t, "a worker to start"), s, weirtest.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	r := &weirtest.Rig{T: t, API: api, Worker: w}
	t.Cleanup(r.Stop)
	if r.NC, err = nats.Connect(address("operator"), nats.Timeout(await.Patience), nats.CustomInboxPrefix("_INBOX.operator")); err != nil {
		t.Fatal(err)
	}
	if r.JS, err = jetstream.New(r.NC); err != nil {
		t.Fatal(err)
	}
	return &roleRig{Rig: r, address: address, file: file}
}

// as runs a command as a role.
func (r *roleRig) as(role string, args ...string) program.Ended {
	r.T.Helper()
	return program.Command(r.T, []string{
		"WEIR_NATS_URL=" + r.address(role), "WEIR_NATS_INBOX=_INBOX." + role, "WEIR_CONFIG=" + r.file,
	}, args...)
}

// TestRolesDoTheirWork: with exactly the rights of deploy/nats a worker takes and dispatches jobs, a producer submits,
// and operator and viewer see what they are to see.
func TestRolesDoTheirWork(t *testing.T) {
	t.Parallel()
	r := newRoleRig(t)
	if got := r.as("producer", "submit", "pay", "vip", "--data", "hello", "--id", "good", "--wait"); got.Code != 0 {
		t.Fatalf("a producer cannot submit: %+v", got)
	}
	if got := r.as("producer", "submit", "pay", "bad", "--wait", "--path", "/bad"); got.Code != cli.ExitFailed || !strings.Contains(got.Stderr, "rejected") {
		t.Fatalf("the letter's notice did not reach its producer: %+v", got)
	}
	if got := r.as("operator", "submit", "pay", "vip", "--data", "hello", "--wait"); got.Code != 0 {
		t.Fatalf("an operator does not hear what became of his job: %+v", got)
	}
	r.Eventually("the letter", func() bool { return r.Store().Messages("WEIR_DEAD") == 1 })
	for _, role := range []string{"operator", "viewer"} {
		for _, c := range []struct{ args, want string }{
			{"keys pay", ""},
			{"show pay vip", "vip"},
			{"config show", "apis:"},
			{"config history", "VERSION"},
			{"dead ls", "bad"},
			{"dead stats", "rejected"},
			{"dead show 1", "rejected"},
			{"verify --json", "pay"},
			{"status", "is healthy"},
			{"spend --by key", "pay/vip"},
			{"job good --json", `"state":"done"`},
			{"results get good", "200"},
			{"results ls", "good"},
			{"events tail --since 1h --limit 1 --type dead", "rejected"},
		} {
			got := r.as(role, strings.Fields(c.args)...)
			if got.Code != 0 && got.Code != cli.ExitNotFound || !strings.Contains(got.Stdout+got.Stderr, c.want) || strings.Contains(got.Stderr, "refuses") {
				t.Errorf("%s: weir %s ended with %+v", role, c.args, got)
			}
		}
	}
	r.operate()
	weirtest.WriteFile(t, r.file, strings.Replace(weirtest.MustRead(t, r.file), "100/s", "90/s", 1))
	if got := r.as("operator", "config", "apply", "--yes", "-f", r.file); got.Code != 0 || strings.Contains(got.Stderr, "could not be stored") {
		t.Errorf("an operator cannot apply a configuration: %+v", got)
	}
	r.Eventually("the worker follows", func() bool { return r.Worker.ConfigState().Version == 2 })
	if got := r.HTTP().Get("/readyz"); !strings.HasPrefix(got, "200") {
		t.Errorf("/readyz: %s", got)
	}
	if refused := r.Worker.Parts().Denied.Explain(errors.New("")); r.Worker.Parts().Denied.Any() {
		t.Errorf("the worker was refused something: %v", refused)
	}
}

// operate says everything an operator may say.
func (r *roleRig) operate() {
	r.T.Helper()
	for _, c := range []struct {
		args string
		code int
	}{
		{"pause pay vip --why test", 0},
		{"resume pay vip", 0},
		{"pause pay", 0},
		{"cancel pay no-such-job", cli.ExitNotFound},
		{"resume pay", 0},
		{"dead export", 0},
		{"dead redrive 1 --yes", 0},
		{"dead purge 2 --yes", 0},
		{"dead purge --api pay --yes", cli.ExitNotFound},
	} {
		got := r.as("operator", strings.Fields(c.args)...)
		if got.Code != c.code || strings.Contains(got.Stderr, "refuses") || strings.Contains(got.Stderr, "could not be stored") {
			r.T.Errorf("operator: weir %s ended with %+v", c.args, got)
		}
		if c.args[:8] == "dead red" {
			r.Eventually("the letter of the redriven job", func() bool { return r.Store().Messages("WEIR_DEAD") == 1 })
		}
	}
}

// TestCommandsSayWhichRightIsMissing: what a role may not do ends at once, with the subject and where rights are given.
func TestCommandsSayWhichRightIsMissing(t *testing.T) {
	t.Parallel()
	r := newRoleRig(t)
	r.as("producer", "submit", "pay", "bad", "--wait", "--path", "/bad")
	r.Eventually("a letter to redrive", func() bool { return r.Store().Messages("WEIR_DEAD") == 1 })
	for _, c := range []struct{ role, args, subject string }{
		{"viewer", "config apply --yes -f " + r.file, "$KV.weir_config.current"},
		{"viewer", "submit pay vip", "weir.jobs.pay.vip"},
		{"viewer", "pause pay", "$KV.weir_control.pause.pay"},
		{"viewer", "cancel pay some-job", "weir.operator.cancel.pay"},
		{"viewer", "dead redrive --yes", "$JS.API.CONSUMER.CREATE.WEIR_pay_0"},
		{"producer", "keys pay", "weir.operator.keys.pay"},
		{"producer", "config show", "$JS.API.STREAM.INFO.KV_weir_config"},
		{"producer", "dead ls", "$JS.API.STREAM.INFO.WEIR_DEAD"},
		{"producer", "verify", "$JS.API.STREAM.INFO.KV_weir_config"},
		{"producer", "status", "weir.operator.spent"},
		{"producer", "results ls", "$JS.API.STREAM.INFO.WEIR_RESULTS"},
		{"producer", "events tail", "$JS.API.STREAM.INFO.WEIR_EVENTS"},
	} {
		if c.args[:6] == "config" && strings.Contains(c.args, "apply") {
			weirtest.WriteFile(t, r.file, strings.Replace(weirtest.MustRead(t, r.file), "100/s", "80/s", 1))
		}
		got := r.as(c.role, strings.Fields(c.args)...) // one that waits for an answer says that none came in time
		if got.Code != cli.ExitFailed || !strings.Contains(got.Stderr, c.subject) || !strings.Contains(got.Stderr, "deploy/nats") {
			t.Errorf("%s: weir %s ended with %+v, want the subject %s", c.role, c.args, got, c.subject)
		}
	}
}

// TestRolesMayDoNoMore tries every important subject as every role, and compares the result with the roles that are
// allowed.
func TestRolesMayDoNoMore(t *testing.T) {
	t.Parallel()
	address := servers.RoleServer(t, filepath.Join(weirtest.Repository, "deploy", "nats", "accounts.conf"))
	const all = "producer worker operator viewer mover"
	publish := map[string]string{
		"weir.jobs.pay.k": "producer operator", "weir.q.pay.0.j.k": "worker", "weir.o.pay.0": "worker",
		"weir.dead.pay.rejected.k": "worker operator", "weir.results.pay.k": "worker", "weir.calls.pay.k": "worker", "weir.events.dead.pay.k": "worker",
		"weir.events.config._._": "worker operator", "weir.operator.keys.pay": "worker operator viewer", "weir.operator.show.pay.k": "worker operator viewer",
		"weir.operator.status": "worker operator viewer", "weir.operator.find.pay": "worker operator viewer",
		"weir.operator.jobs": "worker operator viewer", "weir.operator.ended": "worker operator viewer", "weir.operator.traces": "worker operator viewer",
		"weir.operator.spent": "worker operator viewer", "weir.operator.use.pay": "worker operator viewer",
		"weir.operator.pause.pay": "worker operator", "weir.operator.cancel.pay": "worker operator", "weir.operator.redrive.pay.k": "worker operator",
		"$KV.weir_config.current": "worker operator", "$KV.weir_control.x": "worker operator", "$KV.weir_leases.dispatch": "worker",
		"$KV.weir_leases.member.x":        "worker operator mover",
		"$JS.API.STREAM.DELETE.WEIR_DEAD": "mover", "$JS.API.STREAM.SNAPSHOT.WEIR_DEAD": "mover", "$JS.API.STREAM.RESTORE.WEIR_DEAD": "mover",
		"$JS.API.STREAM.PURGE.WEIR_DEAD": "worker operator", "$JS.API.STREAM.PURGE.WEIR_pay_0": "worker",
		"$JS.API.STREAM.PURGE.WEIR_CALLS": "worker", "$JS.API.STREAM.MSG.DELETE.WEIR_DEAD": "worker operator",
		"$JS.API.STREAM.MSG.DELETE.WEIR_CALLS": "worker", "$JS.API.STREAM.UPDATE.WEIR_DEAD": "worker mover", "$JS.API.STREAM.CREATE.WEIR_x_0": "worker",
		"$JS.API.STREAM.MSG.GET.WEIR_pay_0": "worker operator", "$JS.API.STREAM.MSG.GET.WEIR_DEAD": "worker operator viewer",
		"$JS.API.CONSUMER.CREATE.WEIR_pay_0.x": "worker operator", "$JS.API.CONSUMER.CREATE.WEIR_DEAD.x": "worker operator viewer",
		"$JS.API.DIRECT.GET.KV_weir_control.k": "worker operator", "$JS.API.DIRECT.GET.KV_weir_config.k": "worker operator viewer",
		"_INBOX.somebody.x": "worker", "other.subject": "", "$SYS.REQ.SERVER.PING": "",
	}
	subscribe := map[string]string{
		"weir.jobs.>": "worker", "weir.q.>": "", "weir.results.>": "", "weir.events.>": "operator viewer", "weir.operator.>": "worker",
		"_INBOX.>": "", ">": "", "$JS.API.>": "", "$SRV.>": "worker",
	}
	for role := range strings.FieldsSeq(all) {
		subscribe["_INBOX."+role+".>"] = role
		if role == "producer" {
			subscribe["_INBOX."+role+".x"] = role
		}
	}
	for role := range strings.FieldsSeq(all) {
		nc, err := nats.Connect(address(role), nats.Timeout(await.Patience), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		check := func(what, subject, who string, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			if err := nc.Flush(); err != nil {
				t.Fatal(err)
			}
			refused := nc.LastError() != nil && strings.Contains(nc.LastError().Error(), `"`+subject+`"`)
			if may := slices.Contains(strings.Fields(who), role); may == refused {
				t.Errorf("%s: %s %s: refused is %v (%v)", role, what, subject, refused, nc.LastError())
			}
		}
		for subject, who := range subscribe {
			_, err := nc.SubscribeSync(subject)
			check("subscribe to", subject, who, err)
		}
		for subject, who := range publish {
			check("publish to", subject, who, nc.Publish(subject, []byte("x")))
		}
	}
}

// TestStartNamesTheMissingRight takes one line after another from the worker's role: each start is refused, says which
// subject is missing, and has changed nothing.
func TestStartNamesTheMissingRight(t *testing.T) {
	t.Parallel()
	whole := weirtest.MustRead(t, filepath.Join(weirtest.Repository, "deploy", "nats", "accounts.conf"))
	api := weirtest.StartOrdered(t, nil)
	file := filepath.Join(t.TempDir(), "weir.yaml")
	weirtest.WriteFile(t, file, fmt.Sprintf("apis:\n  pay:\n    url: %s\n    bucket: {rate: 100/s, capacity: 2}\n", api.URL()))
	for _, subject := range []string{
		"weir.q.>", "weir.o.>", "weir.results.>", "weir.dead.>", "$KV.weir_leases.>", "$JS.API.STREAM.CREATE.*", "$JS.API.DIRECT.GET.>", "weir.jobs.>", "$SRV.>",
	} {
		begin, end := strings.Index(whole, "user: worker"), strings.Index(whole, "user: operator")
		role := strings.ReplaceAll(whole[begin:end], `"`+subject+`"`, `"nothing.at.all"`)
		if role == whole[begin:end] {
			t.Fatalf("the worker has no right %s: mend this test", subject)
		}
		conf := filepath.Join(t.TempDir(), "accounts.conf")
		weirtest.WriteFile(t, conf, whole[:begin]+role+whole[end:])
		address := servers.RoleServer(t, conf)
		w, err := worker.Start(await.Context(t, "a worker to start"), program.WorkerSettings(t, address("worker"), file, "w"), weirtest.TestLog(t))
		if err == nil {
			w.Stop()
			_ = await.Result(t, "the end of the worker", w.Wait)
			t.Errorf("without %s the worker starts", subject)
		} else if !strings.Contains(err.Error(), subject) || !strings.Contains(err.Error(), "deploy/nats") {
			t.Errorf("without %s: %v", subject, err)
		}
	}
}

// TestStartEndsAtOnceWhenRefused: where the server does not say what a user may do, the first refusal ends the start.
func TestStartEndsAtOnceWhenRefused(t *testing.T) {
	t.Parallel()
	whole := weirtest.MustRead(t, filepath.Join(weirtest.Repository, "deploy", "nats", "accounts.conf"))
	for _, gone := range []string{`"$SYS.REQ.USER.INFO"`, `"$JS.API.STREAM.CREATE.*",`} {
		whole = strings.Replace(whole, gone, "", 1)
	}
	conf, file := filepath.Join(t.TempDir(), "accounts.conf"), filepath.Join(t.TempDir(), "weir.yaml")
	weirtest.WriteFile(t, conf, whole)
	weirtest.WriteFile(t, file, "apis:\n  pay:\n    url: http://127.0.0.1:1\n    bucket: {rate: 100/s, capacity: 2}\n")
	_, err := worker.Start(await.Context(t, "a worker to start"), program.WorkerSettings(t, servers.RoleServer(t, conf)("worker"), file, "w", environment.RoleIngest), weirtest.TestLog(t))
	if err == nil || !strings.Contains(err.Error(), "$JS.API.STREAM.CREATE.KV_weir_control") {
		t.Errorf("the start ended with %v", err)
	}
}

// TestNobodyWritesByAForgedAnswer: no client can choose a reply subject, or a subject for a push consumer, that a
// stream of weir's captures.
func TestNobodyWritesByAForgedAnswer(t *testing.T) {
	t.Parallel()
	r := newRoleRig(t)
	if got := r.as("producer", "submit", "pay", "bad", "--wait", "--path", "/bad"); got.Code != cli.ExitFailed {
		t.Fatalf("the job that becomes a letter: %+v", got)
	}
	r.Eventually("the letter", func() bool { return r.Store().Messages("WEIR_DEAD") == 1 })
	owner := r.connect(t, "worker")
	// The worker's role may hear these subjects. An answer on one of them is a question to weir.
	all, err := owner.SubscribeSync("weir.operator.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Flush(); err != nil {
		t.Fatal(err)
	}
	targets := []string{"$KV.weir_config.forged", "$KV.weir_control.forged", "weir.q.pay.0.j.forged", "weir.operator.forged", "weir.results.pay.forged"}
	consumer := func(stream, name, to string) []byte {
		return fmt.Appendf(nil, `{"stream_name":%q,"config":{"name":%q,"deliver_subject":%q,"deliver_policy":"all","ack_policy":"none","replay_policy":"instant"}}`, stream, name, to)
	}
	questions := map[string][]string{
		"producer": {"weir.jobs.pay.k", "weir.jobs.nobody.k"},
		"viewer": {
			"$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "$JS.API.STREAM.INFO.WEIR_DEAD", "$JS.API.DIRECT.GET.WEIR_DEAD",
			"$JS.API.STREAM.MSG.GET.WEIR_DEAD", "$JS.API.DIRECT.GET.KV_weir_config.$KV.weir_config.current", "$JS.API.CONSUMER.CREATE.WEIR_DEAD.pulled",
			"$JS.API.CONSUMER.INFO.WEIR_DEAD.pulled", "$JS.API.CONSUMER.MSG.NEXT.WEIR_DEAD.pulled", "$JS.API.CONSUMER.DELETE.WEIR_DEAD.none",
			"weir.operator.status", "weir.operator.keys.pay", "weir.operator.show.pay.k", "weir.operator.find.pay", "weir.operator.jobs", "weir.operator.ended", "weir.operator.traces", "weir.operator.spent", "weir.operator.use.pay", "$SRV.PING", "$SRV.INFO.weir",
		},
	}
	bodies := map[string]string{
		"$JS.API.DIRECT.GET.WEIR_DEAD": `{"seq":1}`, "$JS.API.STREAM.MSG.GET.WEIR_DEAD": `{"seq":1}`, "$JS.API.CONSUMER.MSG.NEXT.WEIR_DEAD.pulled": `{"batch":1,"expires":1000000000}`,
		"$JS.API.CONSUMER.CREATE.WEIR_DEAD.pulled": `{"stream_name":"WEIR_DEAD","config":{"name":"pulled","deliver_policy":"all","ack_policy":"none"}}`,
	}
	for role, subjects := range questions {
		nc := r.connect(t, role)
		for i, target := range targets {
			for _, subject := range subjects {
				if err := nc.PublishRequest(subject, target, []byte(bodies[subject])); err != nil {
					t.Fatal(err)
				}
			}
			if role == "viewer" {
				name := fmt.Sprintf("pushed%d", i)
				if err := nc.PublishRequest("$JS.API.CONSUMER.CREATE.WEIR_DEAD."+name, target, consumer("WEIR_DEAD", name, target)); err != nil {
					t.Fatal(err)
				}
			}
			traced := nats.NewMsg(subjects[0])
			traced.Header.Set("Nats-Trace-Dest", target)
			if err := nc.PublishMsg(traced); err != nil {
				t.Fatal(err)
			}
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		if role == "viewer" { // what was asked before has been answered
			if got := r.as(role, "status"); got.Code != 0 || strings.Contains(got.Stderr, "refuses") {
				t.Errorf("a viewer's question after all that: %+v", got)
			}
			if got := r.as(role, "dead", "ls"); got.Code != 0 {
				t.Errorf("a viewer's letters after all that: %+v", got)
			}
		}
	}
	for _, target := range targets {
		name, err := r.JS.StreamNameBySubject(t.Context(), target)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		s, err := r.JS.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(target))
		if err != nil {
			t.Fatal(err)
		}
		if n := info.State.Subjects[target]; n > 0 {
			t.Errorf("%s took %d messages of a client that may only look, or submit jobs", target, n)
		}
	}
	for {
		msg, err := all.NextMsg(100 * time.Millisecond)
		if err != nil {
			break
		}
		if msg.Subject == "weir.operator.forged" {
			t.Errorf("weir's operators' subjects heard %.80q", msg.Data)
		}
	}
}

// connect is a connection of a role.
func (r *roleRig) connect(t *testing.T, role string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(r.address(role), nats.Timeout(await.Patience), nats.CustomInboxPrefix("_INBOX."+role), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}
