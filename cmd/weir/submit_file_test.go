package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/ingest/await"
)

// submitFile starts `weir submit --file` as a process of its own.
func (r *rig) submitFile(out *bytes.Buffer, args ...string) *exec.Cmd {
	r.t.Helper()
	cmd := exec.CommandContext(await.Context(r.t, "jobs to be handed in"), os.Args[0], append([]string{"submit", "--file"}, args...)...)
	cmd.Env = append(environ(), "WEIR_TEST_AS_WEIR=1", "WEIR_NATS_URL="+r.worker.NATSURL())
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	return cmd
}

// journaled counts the jobs that a journal calls taken.
func (r *rig) journaled(file string) int {
	text, err := os.ReadFile(file + ".journal")
	if err != nil {
		return 0
	}
	return strings.Count(string(text), " taken ")
}

// submitJobs is how many jobs are handed in by runs that are killed: -args -submit-jobs 100000 for a long look.
var submitJobs = flag.Int("submit-jobs", 6000, "jobs of the file whose runs are killed")

// TestSubmitFileKilledAndResumed: a run over a file that is killed twice and begun again has every job called once.
func TestSubmitFileKilledAndResumed(t *testing.T) {
	t.Parallel()
	jobs := *submitJobs
	r := newRig(t, fakeapi.Options{}, manyJobsYAML)
	file := jobsFile(t, jobs)
	began := time.Now()
	for _, upTo := range []int{jobs / 10, jobs / 2} {
		r.killSubmission(file, upTo)
	}
	var out bytes.Buffer
	if err := await.Result(t, "the last run", r.submitFile(&out, file, "credit").Wait); err != nil {
		t.Fatalf("the last run: %v\n%s", err, out.String())
	}
	t.Logf("after %s: %s", time.Since(began), out.String())
	calls := r.awaitCalls(jobs)
	r.eventually("an empty queue", func() bool { return r.waiting("credit") == 0 })
	calledOnce(t, calls, jobs)
}

// TestSubmitFileResumedLate: when weir has forgotten the ids of the run that was killed, what the journal calls taken is not sent
// again, nor is what may have been taken: that is told.
func TestSubmitFileResumedLate(t *testing.T) {
	t.Parallel()
	const jobs = 2000
	r := newRig(t, fakeapi.Options{}, "dedupe: 1s\n"+manyJobsYAML)
	file := jobsFile(t, jobs)
	r.killSubmission(file, jobs/4)
	sent := time.Now()
	r.eventually("ids that weir has forgotten", func() bool { return time.Since(sent) > 2*time.Second })
	var out bytes.Buffer
	err := await.Result(t, "the second run", r.submitFile(&out, file, "credit").Wait)
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
	r.awaitCalls(taken)
	r.eventually("an empty queue", func() bool { return r.waiting("credit") == 0 })
	calledOnce(t, r.api.All(), taken)
}

const manyJobsYAML = `
apis:
  credit:
    url: %s
    bucket: {rate: 5000/s, capacity: 100000, in_flight: 8}
`

func counted(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// jobsFile writes a file of jobs without ids, each with a path of its own, of twenty keys.
func jobsFile(t *testing.T, jobs int) string {
	t.Helper()
	var text strings.Builder
	for i := range jobs {
		fmt.Fprintf(&text, "{\"key\":\"k%d\",\"path\":\"/%d\",\"body\":{\"n\":%d}}\n", i%20, i, i)
	}
	file := filepath.Join(t.TempDir(), "jobs.jsonl")
	writeFile(t, file, text.String())
	return file
}

// killSubmission hands a file in and kills that when so many jobs have their receipts.
func (r *rig) killSubmission(file string, upTo int) {
	r.t.Helper()
	var out bytes.Buffer
	cmd := r.submitFile(&out, file, "credit")
	r.eventually("jobs that were taken", func() bool { return r.journaled(file) >= upTo })
	if err := cmd.Process.Kill(); err != nil {
		r.t.Fatal(err)
	}
	if err := await.Result(r.t, "the end of a run that was killed", cmd.Wait); err == nil {
		r.t.Fatalf("the run had ended before it was killed: %s", out.String())
	}
}

// calledOnce holds that no job was called twice, and at least so many once.
func calledOnce(t *testing.T, calls []fakeapi.Arrival, least int) {
	t.Helper()
	seen := map[string]int{}
	for _, call := range calls {
		seen[call.Path]++
	}
	for path, n := range seen {
		if n != 1 {
			t.Errorf("%s was called %d times", path, n)
		}
	}
	if len(seen) < least {
		t.Errorf("%d jobs were called, of %d that were taken", len(seen), least)
	}
}

// TestSubmitFileWaitsForRoom: more jobs than fit are all taken and called in the order of the file, and few refusals are needed
// to find out when there is room.
func TestSubmitFileWaitsForRoom(t *testing.T) {
	t.Parallel()
	const jobs = 300
	r := newRig(t, fakeapi.Options{}, `
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
	writeFile(t, file, text.String())
	var out bytes.Buffer
	if err := await.Result(t, "the run", r.submitFile(&out, file, "credit", "vip").Wait); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	t.Logf("%s", out.String())
	letters := r.messages("WEIR_DEAD")
	calls := r.awaitCalls(jobs)
	for i := 1; i < len(calls) && len(calls) == jobs; i++ {
		if calls[i].Path < calls[i-1].Path {
			t.Errorf("%s was called before %s", calls[i-1].Path, calls[i].Path)
		}
	}
	if len(calls) != jobs || letters != 0 {
		t.Errorf("%d calls of %d jobs, and %d letters", len(calls), jobs, letters)
	}
}

// TestSubmitFileLeavesNoLetters: a bucket that was full before the file came refuses its jobs until there is room. None of them has a letter
// and a result.
func TestSubmitFileLeavesNoLetters(t *testing.T) {
	r := newRig(t, fakeapi.Options{}, `
apis:
  credit:
    url: %s
    bucket: {rate: 20/s, capacity: 3, in_flight: 1}
`)
	if said, code := r.command("pause", "credit"); code != 0 {
		t.Fatal(said)
	}
	for i := range 3 {
		if a := r.submit("weir.jobs.credit.vip", nil, map[string]string{"Nats-Msg-Id": fmt.Sprintf("before-%d", i)}); a.Error != nil {
			t.Fatal(a.Error)
		}
	}
	file := filepath.Join(t.TempDir(), "jobs.jsonl")
	writeFile(t, file, strings.Repeat("{}\n", 12))
	var out bytes.Buffer
	run := r.submitFile(&out, file, "credit", "vip")
	r.eventually("a job of the file to be refused", func() bool { return !strings.Contains(r.get("/metrics"), `weir_jobs_throttled_total{api="credit"} 0`) })
	if said, code := r.command("resume", "credit"); code != 0 {
		t.Fatal(said)
	}
	if err := await.Result(t, "the run", run.Wait); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if calls, letters := r.awaitCalls(15), r.messages("WEIR_DEAD"); len(calls) != 15 || letters != 0 {
		t.Errorf("%d calls of 15 jobs, and %d letters: %s", len(calls), letters, out.String())
	}
}

// TestSubmitFileEndsBesideASilentPipe: a run that is told to end does so although nothing comes in its pipe, not even an end.
func TestSubmitFileEndsBesideASilentPipe(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeapi.Options{}, manyJobsYAML)
	var out bytes.Buffer
	cmd := exec.CommandContext(await.Context(t, "a run that is told to end"), os.Args[0], "submit", "--file", "-", "credit", "--json")
	cmd.Env = append(environ(), "WEIR_TEST_AS_WEIR=1", "WEIR_NATS_URL="+r.worker.NATSURL())
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
