package soak

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/ingest/await"
)

// holdToClient holds a program of the documents to what they say of it: it awaits its result, branches on a full bucket, and fails
// where the job is wrong.
func holdToClient(t *testing.T, dir string, command ...string) {
	t.Helper()
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  credit-check:
    url: %s
    bucket: {rate: 1/h, capacity: 1}
`)
	if out, err := r.ClientRun(dir, append(command, "order-1")...); err != nil || !strings.HasPrefix(out, "done ") {
		t.Errorf("the first job: %v\n%s", err, out)
	}
	r.Eventually("the end of the first job", func() bool { return r.Store().Waiting("credit-check") == 0 })
	if out, err := r.ClientRun(dir, append(command, "order-1")...); err != nil || !strings.HasPrefix(out, "done ") || len(r.AwaitCalls(1)) != 1 {
		t.Errorf("the first job once more: %v\n%s", err, out)
	}
	if answer := r.Producer().Submit("weir.jobs.credit-check.customer-7", nil, nil); answer.Error != nil {
		t.Fatalf("the second job: %+v", answer.Error)
	}
	if out, err := r.ClientRun(dir, append(command, "order-3")...); err != nil || !strings.Contains(out, "throttled, come back in") {
		t.Errorf("a full bucket: %v\n%s", err, out)
	}
	if out, err := r.ClientRun(dir, append(command, strings.Repeat("x", 300))...); err == nil || !strings.Contains(out, "refused with 400") {
		t.Errorf("an id that is too long: %v\n%s", err, out)
	}
}

// goProgram builds a program of the documents with the module's own client library.
func goProgram(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	weirtest.WriteFile(t, source, text)
	binary := filepath.Join(dir, "program")
	cmd := exec.CommandContext(await.Build(t), "go", "build", "-trimpath", "-o", binary, source)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

func TestDocsClientInGo(t *testing.T) {
	t.Parallel()
	holdToClient(t, t.TempDir(), goProgram(t, weirtest.Program(t, "clients", "go")))
}

func TestDocsClientInJavaScript(t *testing.T) {
	t.Parallel()
	dir := weirtest.NpmInstalled(t, `"@nats-io/transport-node":"3.4.0"`)
	weirtest.WriteFile(t, filepath.Join(dir, "client.js"), weirtest.Program(t, "clients", "js"))
	holdToClient(t, dir, "node", "client.js")
}

// TestDocsClientInPython runs the program with nats-py if it is installed, otherwise with testdata/python/nats.py,
// which has as much of it as the program uses.
func TestDocsClientInPython(t *testing.T) {
	t.Parallel()
	holdToClient(t, pythonProgram(t, weirtest.Program(t, "clients", "python")), "python3", "client.py")
}

// pythonProgram writes a program of the documents to client.py in a new directory.
func pythonProgram(t *testing.T, text string) (dir string) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3 here")
	}
	dir = t.TempDir()
	weirtest.WriteFile(t, filepath.Join(dir, "client.py"), text)
	if err := exec.CommandContext(await.Context(t, "python3"), "python3", "-c", "import nats").Run(); err != nil {
		t.Log("nats-py is not installed here: the program runs with a stand-in")
		weirtest.WriteFile(t, filepath.Join(dir, "nats.py"), weirtest.MustRead(t, weirtest.Repository+"/cmd/weir/weirtest/testdata/python/nats.py"))
	}
	return dir
}

// TestDocsBatchInPython runs the program that hands in a batch: a hundred jobs of ten keys, of which some do not fit.
func TestDocsBatchInPython(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  credit-check:
    url: %s
    bucket: {rate: 1/h, capacity: 10}
    keys: {"customer 3": {capacity: 8}}
`)
	if _, code := r.CLI().Run("pause", "credit-check"); code != 0 {
		t.Fatal("the api could not be paused")
	}
	out, err := r.ClientRun(pythonProgram(t, weirtest.Program(t, "submission", "python")), "python3", "client.py")
	if err != nil || strings.Count(out, "\n") != 2 || !strings.Contains(out, "order-93 bucket full: credit-check/customer 3 holds 8 of 8") {
		t.Errorf("%v\n%s", err, out)
	}
	if n := r.Store().Waiting("credit-check"); n != 98 {
		t.Errorf("%d jobs are stored, 98 fit", n)
	}
}

// TestDocsConsumerOfResults: each result is read once, including one that came while no consumer was reading.
func TestDocsConsumerOfResults(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  credit-check:
    url: %s
    bucket: {rate: 1000/s, capacity: 100}
`)
	read := goProgram(t, weirtest.Program(t, "results", "go"))
	for i := range 3 {
		if answer := r.Producer().Submit("weir.jobs.credit-check.k", nil, map[string]string{"Nats-Msg-Id": fmt.Sprintf("order-%d", i)}); answer.Error != nil {
			t.Fatalf("%+v", answer.Error)
		}
		r.AwaitCalls(i + 1)
		r.Eventually("the results", func() bool { return r.Store().Messages("WEIR_RESULTS") == i+1 })
		out := ""
		r.Eventually("a run of the program that is given something in the second it waits", func() bool {
			said, err := r.ClientRun(t.TempDir(), read)
			if out += said; err != nil {
				t.Fatalf("run %d: %v\n%s", i, err, out)
			}
			return out != ""
		})
		if !strings.HasPrefix(out, fmt.Sprintf("order-%d 200", i)) || strings.Count(out, "order-") != 1 {
			t.Errorf("run %d:\n%s", i, out)
		}
	}
}
