package replicas

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/cmd/weir/weirtest/store"
	"weir/dispatcher/ledger"
	"weir/ingest/await"
)

const moveShortYAML = "apis:\n  pay:\n    url: %s\n    bucket: {rate: 50/s, capacity: 100}\n"

// TestMoveRefuses: nothing is moved under a weir that runs, or on top of another's jobs, and nothing is changed then.
func TestMoveRefuses(t *testing.T) {
	t.Parallel()
	url := servers.StartTarget(t)
	r := weirtest.NewRig(t, fakeapi.Options{}, moveShortYAML)
	data := filepath.Join(r.Dir, "data")
	source := r.Worker.NATSURL()
	refuse := func(what string, code int, text string, args ...string) {
		t.Helper()
		got := program.Command(t, []string{"WEIR_REPLICAS=1"}, append([]string{"move"}, args...)...)
		if got.Code != code || !strings.Contains(got.Stderr, text) {
			t.Errorf("%s: ended with %+v, want %d %q", what, got, code, text)
		}
	}
	refuse("a weir runs on the data", cli.ExitRefused, "another weir uses the data directory", "--from", data, "--to", url)
	refuse("a weir runs at the source", cli.ExitRefused, "a weir is running on", "--from", source, "--to", url)
	refuse("nothing at the source", cli.ExitNotFound, "weir has not run on", "--from", url, "--to", source)
	refuse("a directory of another kind", cli.ExitNotFound, "is not a data directory", "--from", t.TempDir(), "--to", url)
	refuse("no target", cli.ExitUsage, "--to", "--from", data)
	refuse("no server at the target", cli.ExitUnreachable, "no NATS server answers", "--from", source, "--to", "nats://127.0.0.1:1")
	refuse("no move to take back", cli.ExitNotFound, "no move from", "--from", source, "--to", url, "--abandon")
	r.Producer().Submit("weir.jobs.pay.k", nil, nil)
	r.AwaitCalls(1)
	r.Stop()
	w, err := worker.Start(await.Context(t, "a worker to start"), program.ExternalSettings(t, url, filepath.Join(r.Dir, "weir.yaml"), "there"), weirtest.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	refuse("a weir and its streams at the target", cli.ExitRefused, "streams of weir, the first is", "--from", data, "--to", url)
	w.Stop()
	if err := await.Result(t, "the end of the worker", w.Wait); err != nil {
		t.Error(err)
	}
	refuse("streams at the target", cli.ExitRefused, "streams of weir, the first is", "--from", data, "--to", url)
	copied := filepath.Join(t.TempDir(), "copy")
	weirtest.CopyTree(t, data, copied)
	refuse("a copy of the data", cli.ExitRefused, "is a copy of the one in which weir was last started", "--from", copied, "--to", servers.StartTarget(t))
	r.Start() // it was not told to be left
}

// TestMoveBetweenServers moves from one server to another, neither of them weir's own, and onto itself, which is refused.
func TestMoveBetweenServers(t *testing.T) {
	t.Parallel()
	from, to, env := servers.StartTarget(t), servers.StartTarget(t), []string{"WEIR_REPLICAS=1"}
	api := weirtest.StartOrdered(t, nil)
	file := filepath.Join(t.TempDir(), "weir.yaml")
	weirtest.WriteFile(t, file, fmt.Sprintf(moveShortYAML, api.URL()))
	w, err := worker.Start(await.Context(t, "a worker to start"), program.ExternalSettings(t, from, file, "first"), weirtest.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	r := weirtest.RigBeside(t, w, api)
	r.Producer().Submit("weir.jobs.pay.k", nil, nil)
	r.AwaitCalls(1)
	if got := program.Command(t, env, "move", "--from", from, "--to", to); got.Code != cli.ExitRefused {
		t.Errorf("under a weir that runs: %+v", got)
	}
	r.Stop()
	if got := program.Command(t, env, "move", "--from", from, "--to", from); got.Code != cli.ExitRefused {
		t.Errorf("onto itself: %+v", got)
	}
	if got := program.Command(t, env, "move", "--from", from, "--to", to); got.Code != 0 {
		t.Fatalf("%+v", got)
	}
	if w, err = worker.Start(await.Context(t, "a worker to start"), program.ExternalSettings(t, to, file, "second"), weirtest.TestLog(t)); err != nil {
		t.Fatal(err)
	}
	r = weirtest.RigBeside(t, w, api)
	r.Producer().Submit("weir.jobs.pay.k", nil, nil)
	r.AwaitCalls(2)
}

// TestMovedLettersStandOnce: a letter whose job was not deleted before the move is not written a second time after it.
// The server that restored the stream has forgotten its id.
func TestMovedLettersStandOnce(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, moveShortYAML)
	r.Stop()
	r.Offline(func(o *store.Offline) {
		o.Leave("pay", "k", store.Left{Record: &ledger.Record{Call: 1, Attempt: 1, Outcome: "rejected", Final: true}})
		name := queue.StreamName("pay", queue.PartitionOf("k", 4))
		s, err := o.JS.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		seq := s.CachedInfo().State.LastSeq
		o.Put("weir.dead.pay.rejected.k", fmt.Sprintf("letter.%s.%d.%d", name, seq, bucket.MicrosOf(o.StoredAt(name, seq))), "pay", nil)
	})
	url := servers.StartTarget(t)
	if got := program.Command(t, []string{"WEIR_REPLICAS=1"}, "move", "--from", filepath.Join(r.Dir, "data"), "--to", url); got.Code != 0 {
		t.Fatalf("%+v", got)
	}
	w, err := worker.Start(await.Context(t, "a worker to start"), program.ExternalSettings(t, url, filepath.Join(r.Dir, "weir.yaml"), "w"), weirtest.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	there := weirtest.RigBeside(t, w, r.API)
	there.Eventually("the job's deletion", func() bool { return there.Store().Waiting("pay") == 0 })
	if n := there.Store().Messages("WEIR_DEAD"); n != 1 {
		t.Errorf("%d letters of one job", n)
	}
	if n := len(r.API.All()); n != 0 {
		t.Errorf("%d calls of a job that had ended", n)
	}
}

// TestMoveNeedsNoMoreThanItsRole moves to a server with the roles of deploy/nats as the mover, and on to another such
// server; a worker with its own role goes on there.
func TestMoveNeedsNoMoreThanItsRole(t *testing.T) {
	t.Parallel()
	accounts := filepath.Join(weirtest.DeployDir, "nats", "accounts.conf")
	first, second := servers.RoleServer(t, accounts), servers.RoleServer(t, accounts)
	r := weirtest.NewRig(t, fakeapi.Options{}, moveShortYAML)
	r.Producer().Submit("weir.jobs.pay.k", nil, nil)
	r.AwaitCalls(1)
	r.Stop()
	env := []string{"WEIR_REPLICAS=1", "WEIR_NATS_INBOX=_INBOX.mover"}
	if got := program.Command(t, env, "move", "--from", filepath.Join(r.Dir, "data"), "--to", first("mover")); got.Code != 0 {
		t.Fatalf("%+v", got)
	}
	if got := program.Command(t, env, "move", "--from", first("mover"), "--to", second("mover")); got.Code != 0 {
		t.Fatalf("%+v", got)
	}
	file := filepath.Join(r.Dir, "weir.yaml")
	if _, err := worker.Start(await.Context(t, "a worker to start"), program.WorkerSettings(t, first("worker"), file, "w"), weirtest.TestLog(t)); err == nil || !strings.Contains(err.Error(), "were moved") {
		t.Errorf("weir starts on the server in the middle: %v", err)
	}
	w, err := worker.Start(await.Context(t, "a worker to start"), program.WorkerSettings(t, second("worker"), file, "w"), weirtest.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	if err := await.Result(t, "the end of the worker", w.Wait); err != nil {
		t.Error(err)
	}
}
