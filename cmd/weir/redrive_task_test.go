package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/bucket/stream"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/control"
	"weir/deadletter"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
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
	t.Parallel()
	r := newRig(t, fakeapi.Options{KeepBody: 64}, `
apis:
  pay: {url: %s, bucket: {rate: 100/s, capacity: 4}, keys: {late: {capacity: 1, rate: 1/h}}}
`)
	letters := r.overflowed("pay", 5, 8)
	if letters != 20 {
		t.Fatalf("%d letters", letters)
	}
	cmd := exec.CommandContext(await.Context(t, "a redrive"), os.Args[0], "dead", "redrive", "--yes", "--rate", "2/s", "--name", "night")
	cmd.Env = append(environ(), "WEIR_TEST_AS_WEIR=1", "WEIR_NATS_URL="+r.worker.NATSURL())
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

// TestRedriveOutlivesItsWorker kills the weir that works a redrive with kill -9, its server with it, twice: whatever it had begun, the
// redrive goes on after each start, and on the api's own ledger no job stands twice.
func TestRedriveOutlivesItsWorker(t *testing.T) {
	t.Parallel()
	const keys, each = 40, 6
	r := newKillRig(t, fakeapi.Options{KeepBody: 64}, `
dedupe: 1s
apis:
  pay: {url: %s, bucket: {rate: 50/s, capacity: 2}}
`)
	env := append(slices.Clone(r.env), "WEIR_NATS_URL=nats://"+r.addr)
	if got := command(t, env, "pause", "pay"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	var jobs []*nats.Msg
	for i := range keys * each {
		jobs = append(jobs, jobFor("pay", fmt.Sprint("k", i%keys), fmt.Sprint("job-", i)))
	}
	fill(t, r.nc, jobs)
	letters := r.letters()
	if letters != keys*(each-2) {
		t.Fatalf("%d letters", letters)
	}
	for _, args := range [][]string{{"resume", "pay"}, {"dead", "redrive", "--yes", "--detach", "--name", "killed", "--rate", "50/s"}} {
		if got := command(t, env, args...); got.code != 0 {
			t.Fatalf("weir %v: %+v", args, got)
		}
	}
	left, halfWay := letters, false
	for range 2 {
		for deadline := time.Now().Add(patience); r.letters() > max(0, left-40); {
			if time.Now().After(deadline) {
				t.Fatalf("%d letters are left, as many as before", r.letters())
			}
			stream.Sleep(t.Context(), 20*time.Millisecond)
		}
		r.proc.kill()
		r.start()
		left = r.letters()
		halfWay = halfWay || left > 0
	}
	if !halfWay {
		t.Fatal("it was never killed half way")
	}
	got := command(t, env, "dead", "task", "killed", "--follow", "--json")
	if got.code != 0 && got.code != cli.ExitRefused {
		t.Errorf("its end: %+v", got)
	}
	r.awaitEmpty()
	var done control.RedriveTask
	if out := command(t, env, "dead", "task", "killed", "--json"); json.Unmarshal([]byte(out.stdout), &done) != nil || done.State != deadletter.TaskDone ||
		done.Done != done.Total || done.Total != letters {
		t.Errorf("it is %s", out.stdout)
	}
	r.judgeRedriven(keys * each)
	t.Logf("%d letters left, %+v", r.letters(), done)
}

// judgeRedriven holds that of so many jobs each was called once at most, and that those which were not are letters: what a kill -9 left
// unknown, and what overflowed again.
func (r *killRig) judgeRedriven(jobs int) {
	r.t.Helper()
	calls := map[string]int{}
	for _, a := range r.api.All() {
		calls[string(a.Body)]++
	}
	for body, n := range calls {
		if n != 1 {
			r.t.Errorf("%s was called %d times", body, n)
		}
	}
	if missing := jobs - len(calls); missing > r.letters() {
		r.t.Errorf("%d of %d jobs were called, and %d letters are left", len(calls), jobs, r.letters())
	}
}

// letters is how many letters there are.
func (r *killRig) letters() int {
	r.t.Helper()
	js, err := jetstream.New(r.nc)
	if err != nil {
		r.t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; {
		s, err := js.Stream(r.t.Context(), deadletter.Stream)
		if err == nil {
			return int(s.CachedInfo().State.Msgs)
		}
		if time.Now().After(deadline) {
			r.t.Fatal(err)
		}
	}
}

// TestEdit: what is changed of a letter reaches the api, under the job's own id; what was changed stays noted on the job; an edit that is
// refused leaves the letter; and one whose call may have been processed needs the word for that, also where the api is idempotent.
func TestEdit(t *testing.T) {
	t.Parallel()
	api := startOrdered(t, map[string][]string{"old": {"status=422"}, "new": {"status=409"}, "doubt": {"status=500"}})
	r := rigOn(t, api, fmt.Sprintf(`
apis:
  pay:
    url: %s
    max_body: 100B
    idempotency: {header: Idempotency-Key}
    forward_headers: [X-Source]
    retry: {attempts: 1}
    bucket: {rate: 100/s, capacity: 20}
`, api.URL()))
	r.submit("weir.jobs.pay.k", []byte("wrong"), map[string]string{"Nats-Msg-Id": "order-7", "Weir-Path": "/old", "X-Own": "kept", "Weir-Deadline": "1h"})
	r.ended("pay", "k", 1)
	first := strconv.FormatUint(r.letters("pay", "k")[0].Sequence, 10)
	for _, c := range []struct {
		code int
		args []string
	}{
		{cli.ExitUsage, []string{first}},
		{cli.ExitUsage, []string{first, "--set-header", "Weir-Job-Id: other"}},
		{cli.ExitUsage, []string{first, "--unset-header", "nats-msg-id"}},
		{cli.ExitRefused, []string{first, "--data", strings.Repeat("x", 101), "--yes"}},
		{cli.ExitRefused, []string{first, "--set-header", "Weir-Header-X-Other: 1", "--yes"}},
		{cli.ExitRefused, []string{first, "--data", "right"}}, // nobody is there to be asked
		{cli.ExitNotFound, []string{"4711", "--data", "right", "--yes"}},
	} {
		if _, code := r.command(append([]string{"dead", "edit"}, c.args...)...); code != c.code {
			t.Errorf("%v: exit code %d, want %d", c.args, code, c.code)
		}
		if letters := r.letters("pay", "k"); len(letters) != 1 || string(letters[0].Data) != "wrong" || len(r.api.All()) != 1 {
			t.Fatalf("%v: the letters are %+v", c.args, letters)
		}
	}
	if out, code := r.command("dead", "edit", first, "--data", "right", "--set-header", "weir-path: /new", "--set-header", "Weir-Header-X-Source: shop", "--unset-header",
		"weir-deadline", "--yes"); code != 0 {
		t.Fatalf("%s: exit code %d", out, code)
	}
	r.eventually("the letter of the edited job", func() bool {
		letters := r.letters("pay", "k")
		return len(letters) == 1 && letters[0].Header.Get("Weir-Redrives") == "1"
	})
	call := r.awaitCalls(2)[1]
	if string(call.Body) != "right" || call.Path != "/new" || call.Header("Idempotency-Key") != "order-7" || call.Header("X-Source") != "shop" {
		t.Errorf("the api got %+v", call)
	}
	r.ended("pay", "k", 1)
	letter := r.letters("pay", "k")[0]
	want := first + " Weir-Header-X-Source body weir-deadline weir-path"
	if h := letter.Header; h.Get(deadletter.HeaderEdited) != want || h.Get("X-Own") != "kept" || h.Get("Weir-Deadline") != "" || h.Get("Weir-Job-Id") != "order-7" {
		t.Errorf("its letter is %v", h)
	}
	if did, code := r.redrive(strconv.FormatUint(letter.Sequence, 10)); code != 0 || did.Redriven != 1 { // what was edited stays noted
		t.Errorf("redriven again: exit code %d, %+v", code, did)
	}
	r.eventually("its result", func() bool { return len(r.results("pay", "k")) == 1 })
	if n := r.messages(deadletter.Stream); n != 0 {
		t.Errorf("%d letters are left", n)
	}

	r.submit("weir.jobs.pay.doubt", []byte("wrong"), map[string]string{"Weir-Path": "/doubt"})
	r.ended("pay", "doubt", 1)
	doubt := strconv.FormatUint(r.letters("pay", "doubt")[0].Sequence, 10)
	if _, code := r.command("dead", "edit", doubt, "--data", "right", "--yes"); code != cli.ExitRefused || len(r.letters("pay", "doubt")) != 1 {
		t.Errorf("a letter of a call that may have been processed: exit code %d", code)
	}
	if _, code := r.command("dead", "edit", doubt, "--data", "right", "--yes", "--include-unknown"); code != 0 {
		t.Errorf("the same with the word for it: exit code %d", code)
	}
}
