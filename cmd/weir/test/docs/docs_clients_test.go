package docs

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
)

// TestJavaScriptPublishes: both generations of NATS' JavaScript client publish to weir as to a stream, and read a refusal from the body
// of the answer, whatever its headers are.
func TestJavaScriptPublishes(t *testing.T) {
	t.Parallel()
	dir := weirtest.NpmInstalled(t, `"@nats-io/transport-node":"3.4.0","@nats-io/jetstream":"3.4.0","nats":"2.29.3"`)
	weirtest.WriteFile(t, filepath.Join(dir, "publish.js"), weirtest.MustRead(t, weirtest.Repository+"/cmd/weir/weirtest/testdata/js/publish.js"))
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  credit-check:
    url: %s
    bucket: {rate: 1/h, capacity: 1}
`)
	if said, code := r.CLI().Run("pause", "credit-check"); code != 0 {
		t.Fatal(said)
	}
	out, err := r.ClientRun(dir, "node", "publish.js", "weir.jobs.credit-check.k")
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

// TestDocsEventExamples: the events that are shown say nothing that weir does not say.
func TestDocsEventExamples(t *testing.T) {
	t.Parallel()
	data, shown := eventData(t), 0
	for line := range strings.Lines(weirtest.Program(t, "events", "json")) {
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
