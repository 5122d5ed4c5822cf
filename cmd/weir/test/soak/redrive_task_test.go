package soak

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket/stream"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/program"
	"weir/deadletter"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// TestRedriveOutlivesItsCommand: a redrive continues when its command is interrupted, rests after an operator stops it,
// and continues after a resume. Its letters are those that existed when it was started.
func TestRedriveOutlivesItsCommand(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{KeepBody: 64}, `
apis:
  pay: {url: %s, bucket: {rate: 100/s, capacity: 4}, keys: {late: {capacity: 1, rate: 1/h}}}
`)
	letters := r.Overflowed("pay", 5, 8)
	if letters != 20 {
		t.Fatalf("%d letters", letters)
	}
	cmd := exec.CommandContext(await.Context(t, "a redrive"), os.Args[0], "dead", "redrive", "--yes", "--rate", "2/s", "--name", "night")
	cmd.Env = append(program.Environ(), "WEIR_TEST_AS_WEIR=1", "WEIR_NATS_URL="+r.Worker.NATSURL())
	talk := &strings.Builder{}
	cmd.Stderr = talk
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.Eventually("two letters to go", func() bool { return r.Store().LetterCount() <= letters-2 })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := program.ExitCode(await.Result(t, "the end of an interrupted command", cmd.Wait)); code != cli.ExitFailed || !strings.Contains(talk.String(), "weir dead stop night") {
		t.Errorf("exit code %d, %s", code, talk)
	}
	if told := r.CLI().Task("night"); told.State != deadletter.TaskRunning || told.Letters != letters || told.Rate != "2/s" {
		t.Errorf("the redrive is %+v", told)
	}
	left := r.Store().LetterCount()
	r.Eventually("it to go on", func() bool { return r.Store().LetterCount() < left })
	if _, code := r.CLI().Run("dead", "purge", "--yes"); code != cli.ExitRefused {
		t.Errorf("a purge beside it: exit code %d", code)
	}
	if _, code := r.CLI().Run("dead", "stop", "night"); code != 0 {
		t.Errorf("stop: exit code %d", code)
	}
	stopped := r.CLI().Task("night")
	if left = r.Store().LetterCount(); stopped.State != deadletter.TaskStopped || stopped.Done != letters-left || left == 0 {
		t.Errorf("it is %+v, and %d letters are left", stopped, left)
	}
	for range 3 { // what comes later is not part of it
		r.Producer().Submit("weir.jobs.pay.late", []byte("late"), nil)
	}
	came := r.Store().LetterCount() - left
	if _, code := r.CLI().Run("dead", "resume", "night"); code != 0 {
		t.Errorf("resume: exit code %d", code)
	}
	if _, code := r.CLI().Run("dead", "task", "night", "--follow"); code != 0 {
		t.Errorf("its end: exit code %d", code)
	}
	r.AwaitCalls(41)
	for body, n := range r.Referee().PerBody() {
		if n != 1 {
			t.Errorf("%s was called %d times", body, n)
		}
	}
	done := r.CLI().Task("night")
	if done.State != deadletter.TaskDone || done.Redriven != letters || done.Gone != 0 || r.Store().LetterCount() != came || came == 0 {
		t.Errorf("it is %+v, and %d letters are left, of which %d came later", done, r.Store().LetterCount(), came)
	}
	for _, command := range []string{"stop", "resume"} {
		if _, code := r.CLI().Run("dead", command, "night"); code != cli.ExitRefused {
			t.Errorf("%s what is done: exit code %d", command, code)
		}
		if _, code := r.CLI().Run("dead", command, "none"); code != cli.ExitNotFound {
			t.Errorf("%s what is not there: exit code %d", command, code)
		}
	}
	if out, code := r.CLI().Run("dead", "tasks", "--json"); code != 0 || !strings.Contains(out, `"name":"night","state":"done"`) {
		t.Errorf("%s, exit code %d", out, code)
	}
}

// TestRedriveOutlivesItsWorker kills the weir that works a redrive with kill -9, its server with it, twice: whatever it had begun, the
// redrive goes on after each start, and on the api's own ledger no job stands twice.
func TestRedriveOutlivesItsWorker(t *testing.T) {
	t.Parallel()
	const keys, each = 40, 6
	r := weirtest.NewKillRig(t, fakeapi.Options{KeepBody: 64}, `
dedupe: 1s
apis:
  pay: {url: %s, bucket: {rate: 50/s, capacity: 2}}
`)
	env := append(slices.Clone(r.Env), "WEIR_NATS_URL=nats://"+r.Addr)
	if got := program.Command(t, env, "pause", "pay"); got.Code != 0 {
		t.Fatalf("%+v", got)
	}
	var jobs []*nats.Msg
	for i := range keys * each {
		jobs = append(jobs, producer.JobFor("pay", fmt.Sprint("k", i%keys), fmt.Sprint("job-", i)))
	}
	producer.Fill(t, r.NC, jobs)
	buried := r.Letters()
	if buried != keys*(each-2) {
		t.Fatalf("%d letters", buried)
	}
	for _, args := range [][]string{{"resume", "pay"}, {"dead", "redrive", "--yes", "--detach", "--name", "killed", "--rate", "50/s"}} {
		if got := program.Command(t, env, args...); got.Code != 0 {
			t.Fatalf("weir %v: %+v", args, got)
		}
	}
	left, halfWay := buried, false
	for range 2 {
		for deadline := time.Now().Add(weirtest.Patience); r.Letters() > max(0, left-40); {
			if time.Now().After(deadline) {
				t.Fatalf("%d letters are left, as many as before", r.Letters())
			}
			stream.Sleep(t.Context(), 20*time.Millisecond)
		}
		r.Proc.Kill()
		r.Start()
		left = r.Letters()
		halfWay = halfWay || left > 0
	}
	if !halfWay {
		t.Fatal("it was never killed half way")
	}
	got := program.Command(t, env, "dead", "task", "killed", "--follow", "--json")
	if got.Code != 0 && got.Code != cli.ExitRefused {
		t.Errorf("its end: %+v", got)
	}
	r.AwaitEmpty()
	var done deadview.RedriveTask
	if out := program.Command(t, env, "dead", "task", "killed", "--json"); json.Unmarshal([]byte(out.Stdout), &done) != nil || done.State != deadletter.TaskDone ||
		done.Done != done.Total || done.Total != buried {
		t.Errorf("it is %s", out.Stdout)
	}
	r.JudgeRedriven(keys * each)
	t.Logf("%d letters left, %+v", r.Letters(), done)
}
