package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/ingest/await"
)

// npmWithin is how long npm may take to install a client.
const npmWithin = 45 * time.Second

// program is the n-th block of a language in a topic.
func program(t *testing.T, topic, language string) string {
	t.Helper()
	blocks := regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(topicText(t, topic), -1)
	if len(blocks) != 1 {
		t.Fatalf("%s has %d programs in %s, want one", topic, len(blocks), language)
	}
	return blocks[0][1]
}

// clientRun runs a program that gets an id as its last argument, against a rig.
func (r *rig) clientRun(dir string, command ...string) (string, error) {
	r.t.Helper()
	cmd := exec.CommandContext(await.Context(r.t, command[0]), command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(environ(), "NATS_URL="+r.worker.NATSURL())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// holdToClient holds a program of the documents to what they say of it: it awaits its result, branches on a full bucket, and fails
// where the job is wrong.
func holdToClient(t *testing.T, dir string, command ...string) {
	t.Helper()
	r := newRig(t, fakeapi.Options{}, `
apis:
  credit-check:
    url: %s
    bucket: {rate: 1/h, capacity: 1}
`)
	if out, err := r.clientRun(dir, append(command, "order-1")...); err != nil || !strings.HasPrefix(out, "done ") {
		t.Errorf("the first job: %v\n%s", err, out)
	}
	r.eventually("the end of the first job", func() bool { return r.waiting("credit-check") == 0 })
	if out, err := r.clientRun(dir, append(command, "order-1")...); err != nil || !strings.HasPrefix(out, "done ") || len(r.awaitCalls(1)) != 1 {
		t.Errorf("the first job once more: %v\n%s", err, out)
	}
	if answer := r.submit("weir.jobs.credit-check.customer-7", nil, nil); answer.Error != nil {
		t.Fatalf("the second job: %+v", answer.Error)
	}
	if out, err := r.clientRun(dir, append(command, "order-3")...); err != nil || !strings.Contains(out, "throttled, come back in") {
		t.Errorf("a full bucket: %v\n%s", err, out)
	}
	if out, err := r.clientRun(dir, append(command, strings.Repeat("x", 300))...); err == nil || !strings.Contains(out, "refused with 400") {
		t.Errorf("an id that is too long: %v\n%s", err, out)
	}
}

// goProgram builds a program of the documents with the module's own client library.
func goProgram(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	writeFile(t, source, text)
	binary := filepath.Join(dir, "program")
	cmd := exec.CommandContext(await.Build(t), "go", "build", "-trimpath", "-o", binary, source)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

func TestDocsClientInGo(t *testing.T) {
	t.Parallel()
	holdToClient(t, t.TempDir(), goProgram(t, program(t, "clients", "go")))
}

// npmInstalled is a directory with packages of npm, or the end of the test where they cannot be had.
func npmInstalled(t *testing.T, packages string) string {
	t.Helper()
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s here", tool)
		}
	}
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "package.json"), `{"name":"client","private":true,"type":"module","dependencies":{`+packages+`}}`)
	ctx, cancel := context.WithTimeout(t.Context(), npmWithin)
	defer cancel()
	install := exec.CommandContext(ctx, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=0")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("npm cannot install the client from here: %v\n%s", err, out)
	}
	return dir
}

func TestDocsClientInJavaScript(t *testing.T) {
	t.Parallel()
	dir := npmInstalled(t, `"@nats-io/transport-node":"3.4.0"`)
	writeFile(t, filepath.Join(dir, "client.js"), program(t, "clients", "js"))
	holdToClient(t, dir, "node", "client.js")
}

// TestJavaScriptPublishes: both generations of NATS' JavaScript client publish to weir as to a stream, and read a refusal from the body
// of the answer, whatever its headers are.
func TestJavaScriptPublishes(t *testing.T) {
	t.Parallel()
	dir := npmInstalled(t, `"@nats-io/transport-node":"3.4.0","@nats-io/jetstream":"3.4.0","nats":"2.29.3"`)
	writeFile(t, filepath.Join(dir, "publish.js"), mustRead(t, repository+"/cmd/weir/testdata/js/publish.js"))
	r := newRig(t, fakeapi.Options{}, `
apis:
  credit-check:
    url: %s
    bucket: {rate: 1/h, capacity: 1}
`)
	if said, code := r.command("pause", "credit-check"); code != 0 {
		t.Fatal(said)
	}
	out, err := r.clientRun(dir, "node", "publish.js", "weir.jobs.credit-check.k")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"nats-io 3", "nats 2"} {
		for _, line := range []string{
			": one is stored as ",
			": two is refused: bucket full: credit-check/k holds 1 of 1; try again in ",
			": a request is answered 429, and in its header 429",
		} {
			if !strings.Contains(out, name+line) {
				t.Errorf("%q is not in\n%s", name+line, out)
			}
		}
	}
}

// TestDocsClientInPython runs the program with nats-py where it is installed, and else with testdata/python/nats.py, which has as
// much of it as the program uses.
func TestDocsClientInPython(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3 here")
	}
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "client.py"), program(t, "clients", "python"))
	if err := exec.CommandContext(await.Context(t, "python3"), "python3", "-c", "import nats").Run(); err != nil {
		t.Log("nats-py is not installed here: the program runs with a stand-in")
		writeFile(t, filepath.Join(dir, "nats.py"), mustRead(t, repository+"/cmd/weir/testdata/python/nats.py"))
	}
	holdToClient(t, dir, "python3", "client.py")
}

// TestDocsConsumerOfResults: each result is read once, also one that came while nobody read.
func TestDocsConsumerOfResults(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeapi.Options{}, `
apis:
  credit-check:
    url: %s
    bucket: {rate: 1000/s, capacity: 100}
`)
	read := goProgram(t, program(t, "results", "go"))
	for i := range 3 {
		if answer := r.submit("weir.jobs.credit-check.k", nil, map[string]string{"Nats-Msg-Id": fmt.Sprintf("order-%d", i)}); answer.Error != nil {
			t.Fatalf("%+v", answer.Error)
		}
		r.awaitCalls(i + 1)
		r.eventually("the results", func() bool { return r.messages("WEIR_RESULTS") == i+1 })
		out := ""
		r.eventually("a run of the program that is given something in the second it waits", func() bool {
			said, err := r.clientRun(t.TempDir(), read)
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

// TestDocsEventExamples: the events that are shown say nothing that weir does not say.
func TestDocsEventExamples(t *testing.T) {
	t.Parallel()
	data, shown := eventData(t), 0
	for line := range strings.Lines(program(t, "events", "json")) {
		var event struct {
			Type, Source, ID, Subject, Time string
			SpecVersion                     string `json:"specversion"`
			ContentType                     string `json:"datacontenttype"`
			Data                            map[string]any
		}
		read := json.NewDecoder(strings.NewReader(line))
		read.DisallowUnknownFields()
		if err := read.Decode(&event); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		kind := strings.TrimSuffix(strings.TrimPrefix(event.Type, "weir."), ".v1")
		if len(data[kind]) == 0 || event.SpecVersion != "1.0" || event.ContentType != "application/json" {
			t.Errorf("no event is like this: %s", line)
		}
		for name := range event.Data {
			if !slices.Contains(data[kind], name) {
				t.Errorf("%s has no %s", kind, name)
			}
		}
		shown++
	}
	if shown < 3 {
		t.Errorf("%d events are shown", shown)
	}
}
