package weirtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/ingest/await"
)

// SubmitFile starts `weir submit --file` as a process of its own.
func (r *Rig) SubmitFile(out *bytes.Buffer, args ...string) *exec.Cmd {
	r.T.Helper()
	cmd := exec.CommandContext(await.Context(r.T, "jobs to be handed in"), os.Args[0], append([]string{"submit", "--file"}, args...)...)
	cmd.Env = append(Environ(), "WEIR_TEST_AS_WEIR=1", "WEIR_NATS_URL="+r.Worker.NATSURL())
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		r.T.Fatal(err)
	}
	return cmd
}

// journaled returns how many jobs a journal records as taken.
func (r *Rig) journaled(file string) int {
	text, err := os.ReadFile(file + ".journal")
	if err != nil {
		return 0
	}
	return strings.Count(string(text), " taken ")
}

const ManyJobsYAML = `
apis:
  credit:
    url: %s
    jitter: 250ms
    bucket: {rate: 5000/s, capacity: 100000, in_flight: 8}
`

// JobsFile writes a file of jobs without ids for twenty keys, each with a path of its own.
func JobsFile(t *testing.T, jobs int) string {
	t.Helper()
	var text strings.Builder
	for i := range jobs {
		fmt.Fprintf(&text, "{\"key\":\"k%d\",\"path\":\"/%d\",\"body\":{\"n\":%d}}\n", i%20, i, i)
	}
	file := filepath.Join(t.TempDir(), "jobs.jsonl")
	WriteFile(t, file, text.String())
	return file
}

// KillSubmission submits a file and kills the command when at least upTo jobs have receipts.
func (r *Rig) KillSubmission(file string, upTo int) {
	r.T.Helper()
	var out bytes.Buffer
	cmd := r.SubmitFile(&out, file, "credit")
	r.Eventually("jobs that were taken", func() bool { return r.journaled(file) >= upTo })
	if err := cmd.Process.Kill(); err != nil {
		r.T.Fatal(err)
	}
	if err := await.Result(r.T, "the end of a run that was killed", cmd.Wait); err == nil {
		r.T.Fatalf("the run had ended before it was killed: %s", out.String())
	}
}

// CalledOnce checks that no job was called twice, and that at least least jobs were called.
func CalledOnce(t *testing.T, calls []fakeapi.Arrival, least int) {
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
