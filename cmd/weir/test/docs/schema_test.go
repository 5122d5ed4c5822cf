package docs

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli/commands"
	"weir/cmd/weir/internal/cli/schema"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/weirtest"
	"weir/ingest"

	"github.com/nats-io/nats.go"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// compiled is a JSON Schema as others read it.
func compiled(t *testing.T, text []byte) *jsonschema.Schema {
	t.Helper()
	read, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("weir.schema.json", read); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("weir.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asJSON is a YAML text as editors see it. It reports false where JSON has no words for it.
func asJSON(t *testing.T, text []byte) (any, bool) {
	t.Helper()
	var v any
	if err := yaml.Unmarshal(text, &v); err != nil {
		return nil, false
	}
	written, err := json.Marshal(v)
	if err != nil {
		return nil, false
	}
	read, err := jsonschema.UnmarshalJSON(bytes.NewReader(written))
	if err != nil {
		t.Fatal(err)
	}
	return read, true
}

// TestDocsSchemaTakesWhatWeirTakes: every configuration of the repository that weir takes passes its schema, and one that the schema refuses
// is refused by weir.
func TestDocsSchemaTakesWhatWeirTakes(t *testing.T) {
	t.Parallel()
	s := compiled(t, schema.Configuration())
	texts := map[string][]byte{}
	for _, pattern := range []string{
		weirtest.Repository + "/cmd/weir/internal/config/testdata/*.yaml", weirtest.Repository + "/cmd/weir/internal/config/testdata/*/*.yaml", weirtest.Repository + "/deploy/weir*.yaml", weirtest.Repository + "/deploy/*/weir.yaml",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v %v", pattern, files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts[file] = text
		}
	}
	for file, text := range docFiles(t) {
		for i, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "apis:") {
				texts[file+string(rune('a'+i))] = []byte(m[1])
			}
		}
	}
	taken, refused := 0, 0
	for file, text := range texts {
		v, ok := asJSON(t, text)
		_, err := config.Parse(text, config.Options{Name: filepath.Base(file)})
		if !ok {
			continue
		}
		wrong := s.Validate(v)
		switch {
		case err == nil && wrong != nil:
			t.Errorf("%s is valid, and its schema says %v", file, wrong)
		case err == nil:
			taken++
		case wrong != nil:
			refused++
		}
	}
	if taken < 10 || refused < 5 {
		t.Errorf("%d files passed and %d did not: mend this test", taken, refused)
	}
}

// TestDocsSchemaRefusesMistakes: what is wrong in its shape is refused by an editor, too, at the same place.
func TestDocsSchemaRefusesMistakes(t *testing.T) {
	t.Parallel()
	s := compiled(t, schema.Configuration())
	const fine = `
apis:
  sms:
    url: https://sms.example.com
    price: 0.10
    key: subject
    bucket: {rate: 10/s, capacity: 500}
    limits: [{name: one, rate: 10/s}]
`
	if v, _ := asJSON(t, []byte(fine)); s.Validate(v) != nil {
		t.Fatal(s.Validate(v))
	}
	for _, c := range []struct{ replaced, by string }{
		{"capacity: 500", "capcity: 500"},
		{"capacity: 500", "capacity: 0"},
		{"capacity: 500", "capacity: many"},
		{"capacity: 500", "capacity: 5.5"},
		{", capacity: 500", ""},
		{"    url: https://sms.example.com\n", ""},
		{"https://", "ftp://"},
		{"  sms:", "  SMS:"},
		{"rate: 10/s,", "rate: 10,"},
		{"rate: 10/s,", "rate: 10/fortnight,"},
		{"rate: 10/s,", "rate: [10/s],"},
		{"price: 0.10", "price: $1"},
		{"key: subject", "key: sujet"},
		{"key: subject", "key: {tenant_until: .}"},
		{"capacity: 500", "capacity: 500, counts: windows"},
		{"capacity: 500", "capacity: 500, max_wait: 5 fortnights"},
		{"capacity: 500", "capacity: 500, burst: -1"},
		{"[{name: one, rate: 10/s}]", "[{name: one}]"},
		{"[{name: one, rate: 10/s}]", "[{name: one, rate: 10/s, in_flight: 5}]"},
		{"[{name: one, rate: 10/s}]", "[{in_flight: 5, burst: 5}]"},
		{"[{name: one, rate: 10/s}]", "[{rate: 10/s, on_exhausted: hold}]"},
		{"[{name: one, rate: 10/s}]", "[{rate: 10/s, tz: UTC}]"},
		{"[{name: one, rate: 10/s}]", "[{in_flight: 5, cost: 5}]"},
		{"[{name: one, rate: 10/s}]", "[{quota: 10, window: sliding}]"},
		{"[{name: one, rate: 10/s}]", "{rate: 10/s}"},
		{"[{name: one, rate: 10/s}]", "[{rate: 10/s, shadow: 5}]"},
		{"limits: [{name: one, rate: 10/s}]", "retry: {on: [42]}"},
		{"limits: [{name: one, rate: 10/s}]", "retry: {attempts: 0}"},
		{"limits: [{name: one, rate: 10/s}]", "headroom: 10"},
		{"limits: [{name: one, rate: 10/s}]", "jitter: 5"},
		{"limits: [{name: one, rate: 10/s}]", "max_body: 10 apples"},
		{"limits: [{name: one, rate: 10/s}]", "methods: POST"},
		{"limits: [{name: one, rate: 10/s}]", "idempotency: {quoted: true}"},
		{"limits: [{name: one, rate: 10/s}]", "inquiry: {path: /x}"},
		{"\napis:", "\ndedup: 10m\napis:"},
	} {
		text := []byte(strings.Replace(fine, c.replaced, c.by, 1))
		v, ok := asJSON(t, text)
		if !ok || string(text) == fine {
			t.Fatalf("%q for %q is no case: mend this test", c.by, c.replaced)
		}
		if _, err := config.Parse(text, config.Options{}); err == nil {
			t.Errorf("%q for %q: weir takes it", c.by, c.replaced)
		}
		var wrong *jsonschema.ValidationError
		if err := s.Validate(v); !errors.As(err, &wrong) {
			t.Errorf("%q for %q: the schema takes it", c.by, c.replaced)
		}
	}
}

// TestDocsSchemaFiles: what is shipped is what the command prints, and the examples name it for editors.
func TestDocsSchemaFiles(t *testing.T) {
	t.Parallel()
	said := printedBy(t, "config", "schema")
	path := filepath.Join(weirtest.Repository, "deploy", "weir.schema.json")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, said, 0o644); err != nil { //nolint:gosec // it is for everybody
			t.Fatal(err)
		}
	}
	if shipped, err := os.ReadFile(path); err != nil || !bytes.Equal(shipped, said) {
		t.Errorf("%s is not what weir config schema prints (%v): UPDATE_GOLDEN=1 go test ./cmd/weir/test/docs -run DocsSchema writes it anew", path, err)
	}
	for _, file := range []string{"weir.example.yaml", "weir.reference.yaml", "compose/weir.yaml", "k8s/weir.yaml"} {
		up := strings.Repeat("../", strings.Count(file, "/"))
		if first, _, _ := strings.Cut(weirtest.MustRead(t, weirtest.Repository+"/deploy/"+file), "\n"); first != "# yaml-language-server: $schema="+up+"weir.schema.json" {
			t.Errorf("deploy/%s begins with %q and not with its schema", file, first)
		}
	}
}

// printedBy is what a command prints that asks no server.
func printedBy(t *testing.T, args ...string) []byte {
	t.Helper()
	root, out := commands.Root(), &bytes.Buffer{}
	root.SetOut(out)
	root.SetArgs(args)
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// asyncAPI is the part of an AsyncAPI document that this test reads.
type asyncAPI struct {
	Channels map[string]struct {
		Address  string
		Messages map[string]any
	}
	Components struct {
		Messages map[string]struct {
			Headers, Payload json.RawMessage
		}
	}
}

// TestDocsSchemaOfSubjects: the messages of a running weir match its AsyncAPI, and have no header of weir's that is
// missing there. Each type of event occurs, and each channel is a subject that weir or a client publishes to.
func TestDocsSchemaOfSubjects(t *testing.T) {
	t.Parallel()
	var doc asyncAPI
	if err := json.Unmarshal(printedBy(t, "config", "schema", "--asyncapi"), &doc); err != nil {
		t.Fatal(err)
	}
	for _, kind := range valuesOf(t, "EventType", "deadletter") {
		if len(doc.Components.Messages[kind+"Event"].Payload) == 0 || doc.Channels["events"].Messages[kind+"Event"] == nil {
			t.Errorf("the event %s is not in it", kind)
		}
	}
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  tiny:
    url: %s
    bucket: {rate: 1/h, capacity: 1}
  fast:
    url: %[1]s
    bucket: {rate: 1000/s, capacity: 10}
`)
	passes := func(message string, body []byte) {
		t.Helper()
		s := compiled(t, doc.Components.Messages[message].Payload)
		read, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(read); err != nil {
			t.Errorf("%s: %v\n%s", message, err, body)
		}
	}
	knows := func(message string, header nats.Header) {
		t.Helper()
		var known struct{ Properties map[string]any }
		if err := json.Unmarshal(doc.Components.Messages[message].Headers, &known); err != nil {
			t.Fatal(err)
		}
		seen := 0
		for name := range header {
			if !strings.HasPrefix(name, "Weir-") && !strings.HasPrefix(name, "Nats-Service-") || strings.HasPrefix(name, ingest.HeaderJobNats) {
				continue // the job's own
			}
			if seen++; known.Properties[name] == nil {
				t.Errorf("%s: the header %s is not in it", message, name)
			}
		}
		if seen == 0 {
			t.Errorf("%s came without headers: %v", message, header)
		}
	}
	ask := func(subject, body, id string) *nats.Msg {
		t.Helper()
		answer, err := r.NC.RequestMsg(&nats.Msg{Subject: subject, Data: []byte(body), Header: nats.Header{"Nats-Msg-Id": {id}}}, weirtest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	subscribe := func(subject string) *nats.Subscription {
		t.Helper()
		sub, err := r.NC.SubscribeSync(subject)
		if err != nil {
			t.Fatal(err)
		}
		return sub
	}
	next := func(sub *nats.Subscription) *nats.Msg {
		t.Helper()
		msg, err := sub.NextMsg(weirtest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		return msg
	}
	throttled, dead, results, calls, letters := subscribe("weir.events.throttled.>"), subscribe("weir.events.dead.>"), subscribe("weir.results.>"), subscribe("weir.calls.>"), subscribe("weir.dead.>")
	if _, code := r.CLI().Run("pause", "tiny"); code != 0 {
		t.Fatal("the api could not be paused")
	}
	passes("receipt", ask("weir.jobs.tiny.k", "1", "one").Data)
	passes("receipt", ask("weir.jobs.tiny.k", "1", "one").Data)
	refusal := ask("weir.jobs.tiny.k", "2", "two")
	passes("refusal", refusal.Data)
	knows("refusal", refusal.Header)
	passes("throttledEvent", next(throttled).Data)
	knows("letter", next(letters).Header)
	passes("refusal", ask("weir.jobs.tiny", "no key", "three").Data)
	passes("deadEvent", next(dead).Data)
	batch, err := r.NC.RequestMsg(&nats.Msg{
		Subject: "weir.jobs.tiny._", Header: nats.Header{"Weir-Batch": {"2"}}, Data: []byte("18 1 k\r\nNats-Msg-Id: one\r\n16 0 k\r\na: b\r\n"),
	}, weirtest.Patience)
	if err != nil {
		t.Fatal(err)
	}
	passes("batchAnswer", batch.Data)
	if !bytes.Contains(batch.Data, []byte(`"duplicate":true`)) || !bytes.Contains(batch.Data, []byte(`"err_code":20400`)) {
		t.Errorf("the batch is answered %s", batch.Data)
	}
	passes("receipt", ask("weir.jobs.fast.k", "3", "four").Data)
	knows("result", next(results).Header)
	passes("call", next(calls).Data)
}
