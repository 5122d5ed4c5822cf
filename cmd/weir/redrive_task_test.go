package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/control"
	"weir/deadletter"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// task reads a redrive.
func (r *rig) task(name string) control.RedriveTask {
	r.t.Helper()
	out, code := r.command("dead", "task", name, "--json")
	var told control.RedriveTask
	if err := json.Unmarshal([]byte(out), &told); err != nil || code != 0 {
		r.t.Fatalf("%s: exit code %d, %v", out, code, err)
	}
	return told
}

// overflowed fills buckets of so many keys while they are paused, and returns how many letters there are.
func (r *rig) overflowed(api string, keys, each int) int {
	r.t.Helper()
	r.whilePaused(func() {
		var jobs []*nats.Msg
		for i := range keys * each {
			jobs = append(jobs, jobFor(api, fmt.Sprint("k", i%keys), fmt.Sprint("job-", i)))
		}
		fill(r.t, r.nc, jobs)
	})
	r.eventually("an empty queue", func() bool { return r.waiting(api) == 0 })
	return r.letterCount()
}

// TestRedriveOutlivesItsCommand: a redrive goes on when its command is interrupted, rests when somebody stops it, goes on when he resumes
// it, and its letters are those that were there when it was begun.
func TestRedriveOutlivesItsCommand(t *testing.T) {
	r := newRig(t, fakeapi.Options{KeepBody: 64}, `
apis:
  pay: {url: %s, bucket: {rate: 100/s, capacity: 4}, keys: {late: {capacity: 1, rate: 1/h}}}
`)
	letters := r.overflowed("pay", 5, 8)
	if letters != 20 {
		t.Fatalf("%d letters", letters)
	}
	cmd := exec.CommandContext(await.Context(t, "a redrive"), os.Args[0], "dead", "redrive", "--yes", "--rate", "2/s", "--name", "night")
	cmd.Env = append(os.Environ(), "WEIR_TEST_AS_WEIR=1", "WEIR_NATS_URL="+r.worker.NATSURL())
	talk := &strings.Builder{}
	cmd.Stderr = talk
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.eventually("two letters to go", func() bool { return r.letterCount() <= letters-2 })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := exitCode(await.Result(t, "the end of an interrupted command", cmd.Wait)); code != cli.ExitFailed || !strings.Contains(talk.String(), "weir dead stop night") {
		t.Errorf("exit code %d, %s", code, talk)
	}
	if told := r.task("night"); told.State != deadletter.TaskRunning || told.Letters != letters || told.Rate != "2/s" {
		t.Errorf("the redrive is %+v", told)
	}
	left := r.letterCount()
	r.eventually("it to go on", func() bool { return r.letterCount() < left })
	if _, code := r.command("dead", "purge", "--yes"); code != cli.ExitRefused {
		t.Errorf("a purge beside it: exit code %d", code)
	}
	if _, code := r.command("dead", "stop", "night"); code != 0 {
		t.Errorf("stop: exit code %d", code)
	}
	stopped := r.task("night")
	if left = r.letterCount(); stopped.State != deadletter.TaskStopped || stopped.Done != letters-left || left == 0 {
		t.Errorf("it is %+v, and %d letters are left", stopped, left)
	}
	for range 3 { // what comes later is not part of it
		r.submit("weir.jobs.pay.late", []byte("late"), nil)
	}
	came := r.letterCount() - left
	if _, code := r.command("dead", "resume", "night"); code != 0 {
		t.Errorf("resume: exit code %d", code)
	}
	if _, code := r.command("dead", "task", "night", "--follow"); code != 0 {
		t.Errorf("its end: exit code %d", code)
	}
	r.awaitCalls(41)
	for body, n := range r.perBody() {
		if n != 1 {
			t.Errorf("%s was called %d times", body, n)
		}
	}
	done := r.task("night")
	if done.State != deadletter.TaskDone || done.Redriven != letters || done.Gone != 0 || r.letterCount() != came || came == 0 {
		t.Errorf("it is %+v, and %d letters are left, of which %d came later", done, r.letterCount(), came)
	}
	for _, command := range []string{"stop", "resume"} {
		if _, code := r.command("dead", command, "night"); code != cli.ExitRefused {
			t.Errorf("%s what is done: exit code %d", command, code)
		}
		if _, code := r.command("dead", command, "none"); code != cli.ExitNotFound {
			t.Errorf("%s what is not there: exit code %d", command, code)
		}
	}
	if out, code := r.command("dead", "tasks", "--json"); code != 0 || !strings.Contains(out, `"name":"night","state":"done"`) {
		t.Errorf("%s, exit code %d", out, code)
	}
}
