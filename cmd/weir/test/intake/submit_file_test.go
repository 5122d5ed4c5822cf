package intake

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/referee"
	"weir/ingest/await"
)

// TestSubmitFileResumedLate: when weir has forgotten the ids of the killed run, jobs that the journal calls accepted
// are not sent again. Neither are jobs that may have been accepted: these are reported.
func TestSubmitFileResumedLate(t *testing.T) {
	t.Parallel()
	const jobs = 2000
	r := weirtest.NewRig(t, fakeapi.Options{}, "dedupe: 1s\n"+producer.ManyJobsYAML)
	file := producer.JobsFile(t, jobs)
	r.CLI().KillSubmission(file, jobs/4)
	sent := time.Now()
	r.Eventually("ids that weir has forgotten", func() bool { return time.Since(sent) > 2*time.Second })
	var out bytes.Buffer
	err := await.Result(t, "the second run", r.CLI().SubmitFile(&out, file, "credit").Wait)
	told := regexp.MustCompile(`2000 lines: (\d+) taken, (\d+) taken by an earlier run(?:, (\d+) unsure)?`).FindStringSubmatch(out.String())
	if told == nil {
		t.Fatalf("the second run: %v\n%s", err, out.String())
	}
	taken, unsure := counted(t, told[1])+counted(t, told[2]), 0
	if told[3] != "" {
		unsure = counted(t, told[3])
	}
	if taken+unsure != jobs || (err != nil) != (unsure > 0) {
		t.Errorf("%s (%v)", told[0], err)
	}
	r.AwaitCalls(taken)
	r.Eventually("an empty queue", func() bool { return r.Store().Waiting("credit") == 0 })
	referee.CalledOnce(t, r.API.All(), taken)
}

func counted(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestSubmitFileWaitsForRoom: more jobs than fit are all taken and called in the order of the file, and few refusals are needed
// to find out when there is room.
func TestSubmitFileWaitsForRoom(t *testing.T) {
	t.Parallel()
	const jobs = 300
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  credit:
    url: %s
    bucket: {rate: 100/s, capacity: 40, in_flight: 1}
`)
	file := filepath.Join(t.TempDir(), "jobs.jsonl")
	var text strings.Builder
	for i := range jobs {
		fmt.Fprintf(&text, "{\"path\":\"/%03d\"}\n", i)
	}
	weirtest.WriteFile(t, file, text.String())
	var out bytes.Buffer
	if err := await.Result(t, "the run", r.CLI().SubmitFile(&out, file, "credit", "vip").Wait); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	t.Logf("%s", out.String())
	letters := r.Store().Messages("WEIR_DEAD")
	calls := r.AwaitCalls(jobs)
	for i := 1; i < len(calls) && len(calls) == jobs; i++ {
		if calls[i].Path < calls[i-1].Path {
			t.Errorf("%s was called before %s", calls[i-1].Path, calls[i].Path)
		}
	}
	if len(calls) != jobs || letters != 0 {
		t.Errorf("%d calls of %d jobs, and %d letters", len(calls), jobs, letters)
	}
}

// TestSubmitFileLeavesNoLetters: a bucket that was full before the file came refuses its jobs until there is room. No
// job has both a letter and a result. A call without an answer keeps the bucket full; a pause would not do, since weir
// would then ask for a retry a minute later.
func TestSubmitFileLeavesNoLetters(t *testing.T) {
	t.Parallel()
	room := make(chan struct{})
	leave := sync.OnceFunc(func() { close(room) })
	t.Cleanup(leave)
	answer := func(ctx context.Context, _ *fakeapi.Request) fakeapi.Behaviour {
		select {
		case <-room:
		case <-ctx.Done():
		}
		return fakeapi.Behaviour{}
	}
	r := weirtest.NewRig(t, fakeapi.Options{Script: answer}, `
apis:
  credit:
    url: %s
    timeout: 5m
    bucket: {rate: 20/s, capacity: 3, in_flight: 1}
`)
	for i := range 3 {
		if a := r.Producer().Submit("weir.jobs.credit.vip", nil, map[string]string{"Nats-Msg-Id": fmt.Sprintf("before-%d", i)}); a.Error != nil {
			t.Fatal(a.Error)
		}
	}
	file := filepath.Join(t.TempDir(), "jobs.jsonl")
	weirtest.WriteFile(t, file, strings.Repeat("{}\n", 12))
	var out bytes.Buffer
	run := r.CLI().SubmitFile(&out, file, "credit", "vip")
	r.Eventually("a job of the file to be refused", func() bool {
		return !strings.Contains(r.HTTP().Get("/metrics"), `weir_jobs_throttled_total{api="credit"} 0`)
	})
	leave()
	if err := await.Result(t, "the run", run.Wait); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if calls, letters := r.AwaitCalls(15), r.Store().Messages("WEIR_DEAD"); len(calls) != 15 || letters != 0 {
		t.Errorf("%d calls of 15 jobs, and %d letters: %s", len(calls), letters, out.String())
	}
}

// TestSubmitFileEndsBesideASilentPipe: a run that gets a signal to end does so, even if its pipe delivers nothing, not
// even its end.
func TestSubmitFileEndsBesideASilentPipe(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, producer.ManyJobsYAML)
	var out bytes.Buffer
	cmd := exec.CommandContext(await.Context(t, "a run that is told to end"), os.Args[0], "submit", "--file", "-", "credit", "--json")
	cmd.Env = append(program.Environ(), "WEIR_TEST_AS_WEIR=1", "WEIR_NATS_URL="+r.Worker.NATSURL())
	cmd.Stderr = &out
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, `{"key":"k","body":1}`+"\n"); err != nil {
		t.Fatal(err)
	}
	await.Return(t, "the first line's answer", func() { _, _ = answers.Read(make([]byte, 1)) })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await.Return(t, "its end", func() { _ = cmd.Wait() }) // its exit code says that lines may be left
	if !strings.Contains(out.String(), "1 taken") {
		t.Error(out.String())
	}
}
