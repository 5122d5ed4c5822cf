package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/lease"
	"weir/bucket/queue"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/move"
	"weir/cmd/weir/internal/worker"
	"weir/dispatcher/ledger"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const moveShortYAML = "apis:\n  pay:\n    url: %s\n    bucket: {rate: 50/s, capacity: 100}\n"

// TestMoveRefuses: nothing is moved under a weir that runs, or on top of another's jobs, and nothing is changed then.
func TestMoveRefuses(t *testing.T) {
	t.Parallel()
	url := startTarget(t)
	r := newRig(t, fakeapi.Options{}, moveShortYAML)
	data := filepath.Join(r.dir, "data")
	source := r.worker.NATSURL()
	refuse := func(what string, code int, text string, args ...string) {
		t.Helper()
		got := command(t, []string{"WEIR_REPLICAS=1"}, append([]string{"move"}, args...)...)
		if got.code != code || !strings.Contains(got.stderr, text) {
			t.Errorf("%s: ended with %+v, want %d %q", what, got, code, text)
		}
	}
	refuse("a weir runs on the data", cli.ExitRefused, "another weir uses the data directory", "--from", data, "--to", url)
	refuse("a weir runs at the source", cli.ExitRefused, "a weir runs on", "--from", source, "--to", url)
	refuse("nothing at the source", cli.ExitNotFound, "weir has not run on", "--from", url, "--to", source)
	refuse("a directory of another kind", cli.ExitNotFound, "no data directory", "--from", t.TempDir(), "--to", url)
	refuse("no target", cli.ExitUsage, "--to", "--from", data)
	refuse("nobody at the target", cli.ExitUnreachable, "no NATS server answers", "--from", source, "--to", "nats://127.0.0.1:1")
	refuse("no move to take back", cli.ExitNotFound, "no move from", "--from", source, "--to", url, "--abandon")
	r.submit("weir.jobs.pay.k", nil, nil)
	r.awaitCalls(1)
	r.stop()
	w, err := worker.Start(await.Context(t, "a worker to start"), externalSettings(t, url, filepath.Join(r.dir, "weir.yaml"), "there"), testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	refuse("a weir and its streams at the target", cli.ExitRefused, "streams of weir already", "--from", data, "--to", url)
	w.Stop()
	if err := await.Result(t, "the end of the worker", w.Wait); err != nil {
		t.Error(err)
	}
	refuse("streams at the target", cli.ExitRefused, "streams of weir already", "--from", data, "--to", url)
	copied := filepath.Join(t.TempDir(), "copy")
	copyTree(t, data, copied)
	refuse("a copy of the data", cli.ExitRefused, "is a copy of the one in which weir was last started", "--from", copied, "--to", startTarget(t))
	r.start() // it was not told to be left
}

// TestMoveAbandoned takes a move back that was killed: the target is empty again, and weir goes on at the source.
func TestMoveAbandoned(t *testing.T) {
	t.Parallel()
	url, other := startTarget(t), startTarget(t)
	r := newRig(t, fakeapi.Options{}, moveShortYAML)
	data := filepath.Join(r.dir, "data")
	r.submit("weir.jobs.pay.k", nil, nil)
	r.awaitCalls(1)
	r.stop()
	env := []string{"WEIR_REPLICAS=1"}
	if killedMove(t, data, url, 2) {
		t.Fatal("the move ended before it could be killed")
	}
	if got := command(t, env, "move", "--from", data, "--to", other); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "on their way to "+url) {
		t.Errorf("a move to elsewhere meanwhile: %+v", got)
	}
	if got := command(t, env, "move", "--from", data, "--to", other, "--abandon"); got.code != cli.ExitRefused {
		t.Errorf("a move is taken back with its copies left: %+v", got)
	}
	if got := command(t, env, "move", "--from", data, "--to", url, "--abandon"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := move.Streams(t.Context(), js); err != nil || len(left) > 0 {
		t.Errorf("%d streams are left at the target, %v", len(left), err)
	}
	r.start()
	r.submit("weir.jobs.pay.k", nil, nil)
	r.awaitCalls(2)
	r.stop()
	if got := command(t, env, "move", "--from", data, "--to", url); got.code != 0 {
		t.Errorf("the same move again: %+v", got)
	}
	if got := command(t, env, "move", "--from", data, "--to", url, "--abandon"); got.code != cli.ExitRefused {
		t.Errorf("a move that is done is taken back: %+v", got)
	}
}

// TestMoveBetweenServers moves from one server to another, neither of them weir's own, and onto itself, which is refused.
func TestMoveBetweenServers(t *testing.T) {
	t.Parallel()
	from, to, env := startTarget(t), startTarget(t), []string{"WEIR_REPLICAS=1"}
	api := startOrdered(t, nil)
	file := filepath.Join(t.TempDir(), "weir.yaml")
	writeFile(t, file, fmt.Sprintf(moveShortYAML, api.URL()))
	w, err := worker.Start(await.Context(t, "a worker to start"), externalSettings(t, from, file, "first"), testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	r := rigBeside(t, w, api)
	r.submit("weir.jobs.pay.k", nil, nil)
	r.awaitCalls(1)
	if got := command(t, env, "move", "--from", from, "--to", to); got.code != cli.ExitRefused {
		t.Errorf("under a weir that runs: %+v", got)
	}
	r.stop()
	if got := command(t, env, "move", "--from", from, "--to", from); got.code != cli.ExitRefused {
		t.Errorf("onto itself: %+v", got)
	}
	if got := command(t, env, "move", "--from", from, "--to", to); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	if w, err = worker.Start(await.Context(t, "a worker to start"), externalSettings(t, to, file, "second"), testLog(t)); err != nil {
		t.Fatal(err)
	}
	r = rigBeside(t, w, api)
	r.submit("weir.jobs.pay.k", nil, nil)
	r.awaitCalls(2)
}

// TestMovedLettersStandOnce: a letter whose job was not deleted before the move is not written a second time after it.
// The server that restored the stream has forgotten its id.
func TestMovedLettersStandOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeapi.Options{}, moveShortYAML)
	r.stop()
	r.offline(func(o *offline) {
		o.leave("pay", "k", left{record: &ledger.Record{Call: 1, Attempt: 1, Outcome: "rejected", Final: true}})
		name := queue.StreamName("pay", queue.PartitionOf("k", 4))
		s, err := o.js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		seq := s.CachedInfo().State.LastSeq
		o.put("weir.dead.pay.rejected.k", fmt.Sprintf("letter.%s.%d.%d", name, seq, bucket.MicrosOf(o.storedAt(name, seq))), "pay", nil)
	})
	url := startTarget(t)
	if got := command(t, []string{"WEIR_REPLICAS=1"}, "move", "--from", filepath.Join(r.dir, "data"), "--to", url); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	w, err := worker.Start(await.Context(t, "a worker to start"), externalSettings(t, url, filepath.Join(r.dir, "weir.yaml"), "w"), testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	there := rigBeside(t, w, r.api)
	there.eventually("the job's deletion", func() bool { return there.waiting("pay") == 0 })
	if n := there.messages("WEIR_DEAD"); n != 1 {
		t.Errorf("%d letters of one job", n)
	}
	if n := len(r.api.All()); n != 0 {
		t.Errorf("%d calls of a job that had ended", n)
	}
}

// TestMoveNeedsNoMoreThanItsRole moves to a server with the roles of deploy/nats as the mover, and on to another such
// server; a worker with its own role goes on there.
func TestMoveNeedsNoMoreThanItsRole(t *testing.T) {
	t.Parallel()
	accounts := filepath.Join(deployDir, "nats", "accounts.conf")
	first, second := roleServer(t, accounts), roleServer(t, accounts)
	r := newRig(t, fakeapi.Options{}, moveShortYAML)
	r.submit("weir.jobs.pay.k", nil, nil)
	r.awaitCalls(1)
	r.stop()
	env := []string{"WEIR_REPLICAS=1", "WEIR_NATS_INBOX=_INBOX.mover"}
	if got := command(t, env, "move", "--from", filepath.Join(r.dir, "data"), "--to", first("mover")); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	if got := command(t, env, "move", "--from", first("mover"), "--to", second("mover")); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	file := filepath.Join(r.dir, "weir.yaml")
	if _, err := worker.Start(await.Context(t, "a worker to start"), workerSettings(t, first("worker"), file, "w"), testLog(t)); err == nil || !strings.Contains(err.Error(), "were moved") {
		t.Errorf("weir starts on the server in the middle: %v", err)
	}
	w, err := worker.Start(await.Context(t, "a worker to start"), workerSettings(t, second("worker"), file, "w"), testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	if err := await.Result(t, "the end of the worker", w.Wait); err != nil {
		t.Error(err)
	}
}

// TestMoveFromUnderAStoppedReplica: a replica that is stopped while its jobs are moved away calls none of them when it goes
// on. It ends.
func TestMoveFromUnderAStoppedReplica(t *testing.T) {
	t.Parallel()
	url := startTarget(t)
	r := newReplicas(t, url, 1, fmt.Sprintf(replicaAPI, notIdempotent))
	var jobs []*nats.Msg
	for n := range 1000 {
		jobs = append(jobs, jobFor("pay", fmt.Sprint("k", n%2), fmt.Sprint("job-", n)))
	}
	r.fillPaused(jobs)
	r.awaitCalls(t.Context(), 10)
	r.signal(0, freezes)
	before := len(r.api.All())
	if before > len(jobs)*3/4 {
		t.Fatalf("%d of %d jobs were called before the replica was stopped: that would prove nothing", before, len(jobs))
	}
	got := command(t, []string{"WEIR_REPLICAS=1"}, "move", "--from", url, "--to", startTarget(t))
	if got.code != 0 {
		t.Errorf("the move ended with %+v", got)
	}
	js, err := jetstream.New(r.nc)
	if err != nil {
		t.Fatal(err)
	}
	registry, err := lease.FindRegistry(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if err := registry.Watch(ctx, func(s lease.Sighting) {
		switch {
		case s.Member != nil:
			t.Errorf("%s may still renew its lease", s.Member.Instance)
		case s.Session == "" && s.Partition == nil:
			stop()
		}
	}); err != nil {
		t.Error(err)
	}
	r.signal(0, thaws)
	select {
	case <-r.procs[0].exited:
	case <-time.After(patience):
		t.Error("the replica of the old server works on")
	}
	if n := len(r.api.All()); n > before+8 { // in_flight of both keys
		t.Errorf("%d calls before the move, %d after it by the replica of the old server", before, n-before)
	}
}

// TestLateIntakeIsRefused: an intake that was stopped while the jobs were moved away tells a producer of the old server that
// nothing was kept.
func TestLateIntakeIsRefused(t *testing.T) {
	t.Parallel()
	url := startTarget(t)
	r := newReplicas(t, url, 1, fmt.Sprintf(replicaAPI, notIdempotent))
	for n := range 20 {
		r.publish(await.Context(t, "a receipt"), fmt.Sprintf("weir.jobs.pay.k%d", n), fmt.Sprintf("job-%d", n), nil)
	}
	r.signal(0, freezes)
	if got := command(t, []string{"WEIR_REPLICAS=1"}, "move", "--from", url, "--to", startTarget(t)); got.code != 0 {
		t.Fatalf("the move ended with %+v", got)
	}
	answers, err := r.nc.SubscribeSync("late.*")
	if err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		if err := r.nc.PublishRequest(fmt.Sprintf("weir.jobs.pay.k%d", n), fmt.Sprintf("late.%d", n), []byte("late")); err != nil {
			t.Fatal(err)
		}
	}
	r.signal(0, thaws)
	for range 20 {
		msg, err := answers.NextMsg(patience)
		if err != nil {
			t.Fatal(err)
		}
		var a answer
		if err := json.Unmarshal(msg.Data, &a); err != nil {
			t.Fatal(err)
		}
		if a.Error == nil || a.Error.Code != 503 {
			t.Errorf("a late job is answered: %s", msg.Data)
		}
	}
}
