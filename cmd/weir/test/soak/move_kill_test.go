package soak

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/ops/migrate"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestMoveAbandoned takes a move back that was killed: the target is empty again, and weir goes on at the source.
func TestMoveAbandoned(t *testing.T) {
	t.Parallel()
	url, other := servers.StartTarget(t), servers.StartTarget(t)
	r := weirtest.NewRig(t, fakeapi.Options{}, "apis:\n  pay:\n    url: %s\n    bucket: {rate: 50/s, capacity: 100}\n")
	data := filepath.Join(r.Dir, "data")
	r.Producer().Submit("weir.jobs.pay.k", nil, nil)
	r.AwaitCalls(1)
	r.Stop()
	env := []string{"WEIR_REPLICAS=1"}
	if killedMove(t, data, url, 2) {
		t.Fatal("the move ended before it could be killed")
	}
	if got := program.Command(t, env, "move", "--from", data, "--to", other); got.Code != cli.ExitRefused || !strings.Contains(got.Stderr, " to "+url+" was begun") {
		t.Errorf("a move to elsewhere meanwhile: %+v", got)
	}
	if got := program.Command(t, env, "move", "--from", data, "--to", other, "--abandon"); got.Code != cli.ExitRefused {
		t.Errorf("a move is taken back with its copies left: %+v", got)
	}
	if got := program.Command(t, env, "move", "--from", data, "--to", url, "--abandon"); got.Code != 0 {
		t.Fatalf("%+v", got)
	}
	nc, err := nats.Connect(url, nats.Timeout(await.Patience))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := migrate.Streams(t.Context(), js); err != nil || len(left) > 0 {
		t.Errorf("%d streams are left at the target, %v", len(left), err)
	}
	r.Start()
	r.Producer().Submit("weir.jobs.pay.k", nil, nil)
	r.AwaitCalls(2)
	r.Stop()
	if got := program.Command(t, env, "move", "--from", data, "--to", url); got.Code != 0 {
		t.Errorf("the same move again: %+v", got)
	}
	if got := program.Command(t, env, "move", "--from", data, "--to", url, "--abandon"); got.Code != cli.ExitRefused {
		t.Errorf("a move that is done is taken back: %+v", got)
	}
}

// filledSource is a stopped weir's data with some thousand jobs that wait.
func filledSource(t *testing.T) (r *weirtest.Rig, data string) {
	t.Helper()
	r = weirtest.NewRig(t, fakeapi.Options{}, "apis:\n  slow:\n    url: %s\n    idempotency: {header: Idempotency-Key}\n    bucket: {rate: 1/h, capacity: 5000}\n")
	body := []byte(strings.Repeat("incompressible? hardly. ", 40))
	inbox := nats.NewInbox()
	answers, err := r.NC.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	const jobs = 4000
	for n := range jobs {
		if err := r.NC.PublishRequest(fmt.Sprintf("weir.jobs.slow.k%d", n%40), inbox, append(body, fmt.Sprint(n)...)); err != nil {
			t.Fatal(err)
		}
	}
	for range jobs {
		if _, err := answers.NextMsg(weirtest.Patience); err != nil {
			t.Fatal(err)
		}
	}
	r.AwaitCalls(40)
	r.Eventually("40 results", func() bool { return r.Store().Messages("WEIR_RESULTS") == 40 })
	r.Stop()
	return r, filepath.Join(r.Dir, "data")
}

// TestMoveKilledHalfWay kills a move after each of its steps, and in between: weir starts at neither end meanwhile, and the
// next try goes on. In the end everything is there once.
func TestMoveKilledHalfWay(t *testing.T) {
	t.Parallel()
	r, data := filledSource(t)
	url, file := servers.StartTarget(t), filepath.Join(r.Dir, "weir.yaml")
	external := program.ExternalSettingsWith(t, url, file, nil)
	killed := 0
	for lines := 0; ; lines++ {
		ended := killedMove(t, data, url, lines)
		if ended {
			break
		}
		killed++
		if _, err := worker.Start(await.Context(t, "a worker to start"), r.Settings(), weirtest.TestLog(t)); err == nil || !strings.Contains(err.Error(), "weir move") {
			t.Fatalf("weir starts at the source after %d lines: %v", lines, err)
		}
		if w, err := worker.Start(await.Context(t, "a worker to start"), external, weirtest.TestLog(t)); err == nil || !strings.Contains(err.Error(), "weir move") {
			if err == nil {
				w.Stop()
				_ = await.Result(t, "the end of the worker", w.Wait)
			}
			t.Fatalf("weir starts at the target after %d lines: %v", lines, err)
		}
	}
	if killed < 5 {
		t.Errorf("the move was killed only %d times", killed)
	}
	nc, err := nats.Connect(url, nats.Timeout(await.Patience))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	bodies := map[string]int{}
	for p := range 4 {
		s, err := js.Stream(t.Context(), fmt.Sprint("WEIR_slow_", p))
		if err != nil {
			t.Fatal(err)
		}
		for seq := s.CachedInfo().State.FirstSeq; seq <= s.CachedInfo().State.LastSeq; seq++ {
			if m, err := s.GetMsg(t.Context(), seq); err == nil && strings.Contains(m.Subject, ".j.") {
				bodies[string(m.Data)]++
			}
		}
	}
	if len(bodies) != 4000-40 {
		t.Errorf("%d jobs wait at the target, want 3960", len(bodies))
	}
	for body, n := range bodies {
		if n != 1 {
			t.Errorf("%d times: …%s", n, body[len(body)-8:])
		}
	}
	w, err := worker.Start(await.Context(t, "a worker to start"), external, weirtest.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	if err := await.Result(t, "the end of the worker", w.Wait); err != nil {
		t.Error(err)
	}
	if n := len(r.API.All()); n != 40 {
		t.Errorf("the api saw %d calls: a key whose hour was not over was called again", n)
	}
}

// killedMove runs a move and kills it after it said so many lines. It reports whether it ended by itself before.
func killedMove(t *testing.T, data, url string, lines int) (ended bool) {
	t.Helper()
	ctx := await.Context(t, "weir move")
	cmd := exec.CommandContext(ctx, os.Args[0], "move", "--from", data, "--to", url)
	cmd.Env = append(program.Environ(), "WEIR_TEST_AS_WEIR=1", "WEIR_REPLICAS=1")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	scan, step, text := bufio.NewScanner(stderr), regexp.MustCompile(`^weir: \d+ of \d+`), ""
	for said := 0; scan.Scan(); {
		text += scan.Text() + "\n"
		if step.MatchString(scan.Text()) {
			if said++; said > lines {
				_ = cmd.Process.Kill()
			}
		}
	}
	err = await.Result(t, "the end of the move", cmd.Wait)
	if ctx.Err() != nil {
		t.Fatalf("%v, which said:\n%s", context.Cause(ctx), text)
	}
	if cmd.ProcessState.Success() {
		return true
	}
	if cmd.ProcessState.Exited() {
		t.Fatalf("the move ended with %v:\n%s", err, text)
	}
	return false
}
