package weirtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/ingest/await"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Secrets in the rig of OverHTTP: the api's credential, a token for each role, and a job's body.
const (
	CanaryHeader   = "canary-of-the-api-0123456789"
	CanaryProducer = "canary-of-producer-0123456789"
	CanaryViewer   = "canary-of-viewer-0123456789"
	CanaryOperator = "canary-of-operator-0123456789"
	CanaryBody     = "canary-of-a-body <script>alert(1)</script>"
)

const askedYAML = `
apis:
  a:
    url: %s
    price: 0.10
    headers: {Authorization: "Bearer ${env:SECRET_OF_CANARY}"}
    forward_headers: [X-Key, X-Secret]
    bucket: {rate: 50/s, capacity: 2}
    limits: [{name: all, rate: 100/s}, {name: spend, budget: 10.00/day}]
http:
  tokens:
    shop: {role: producer, token: "${env:SECRET_OF_PRODUCER}"}
    wall: {role: viewer, token: "${env:SECRET_OF_VIEWER}"}
    anna: {role: operator, token: "${env:SECRET_OF_OPERATOR}"}
`

// OverHTTP starts a weir with tokens, a finished job, two waiting jobs and a letter.
func OverHTTP(t *testing.T) *Rig {
	t.Helper()
	r := NewRig(t, fakeapi.Options{}, askedYAML)
	r.Submit("weir.jobs.a.one", []byte("x"), map[string]string{"Nats-Msg-Id": "done", "Weir-Header-X-Key": "one"})
	r.AwaitCalls(1)
	r.Eventually("the result", func() bool { return r.Messages("WEIR_RESULTS") == 1 })
	if status, body := r.Say("POST", "/api/v1/apis/a/keys/k%2F2/pause", CanaryOperator, `{"why": "a test"}`); status != http.StatusOK {
		t.Fatalf("a pause: %d %s", status, body)
	}
	for _, id := range []string{"waits", "waits-too", "overflows"} {
		r.Submit("weir.jobs.a.k%2F2", []byte(CanaryBody), map[string]string{"Nats-Msg-Id": id, "Weir-Header-X-Secret": CanaryBody, "Weir-Query": "token=" + url.QueryEscape(CanaryBody)})
	}
	r.Eventually("the letter", func() bool { return r.Messages("WEIR_DEAD") == 1 })
	return r
}

// Say sends one request. It returns the answer's status and body.
func (r *Rig) Say(method, path, token, body string) (status int, answer string) {
	r.T.Helper()
	q, err := http.NewRequestWithContext(await.Context(r.T, method+" "+path), method, "http://"+r.Worker.HTTPAddr()+path, strings.NewReader(body))
	if err != nil {
		r.T.Fatal(err)
	}
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		r.T.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		r.T.Fatal(err)
	}
	return res.StatusCode, string(data)
}

// Document is the OpenAPI document that the rig's weir serves.
type Document struct {
	Paths map[string]map[string]struct {
		Responses map[string]struct {
			Content map[string]struct {
				Schema json.RawMessage `json:"schema"`
			} `json:"content"`
		} `json:"responses"`
	} `json:"paths"`
	compiler *jsonschema.Compiler
}

func (r *Rig) Document() *Document {
	r.T.Helper()
	status, text := r.Say("GET", "/api/v1/openapi.json", CanaryViewer, "")
	if status != http.StatusOK {
		r.T.Fatalf("the document: %d %s", status, text)
	}
	d := &Document{compiler: jsonschema.NewCompiler()}
	if err := json.Unmarshal([]byte(text), d); err != nil {
		r.T.Fatal(err)
	}
	// An answer must have no member that the document does not describe.
	strict := regexp.MustCompile(`"properties": \{`).ReplaceAllString(text, `"additionalProperties": false, "properties": {`)
	whole, err := jsonschema.UnmarshalJSON(strings.NewReader(strict))
	if err != nil {
		r.T.Fatal(err)
	}
	if err := d.compiler.AddResource("weir:openapi.json", whole); err != nil {
		r.T.Fatal(err)
	}
	return d
}

// Check fails the test if an answer does not match its schema in the document.
func (d *Document) Check(t *testing.T, method, template, answer string) {
	t.Helper()
	pointer := fmt.Sprintf("weir:openapi.json#/paths/%s/%s/responses/200/content/application~1json/schema",
		url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(template)), strings.ToLower(method))
	schema, err := d.compiler.Compile(pointer)
	if err != nil {
		t.Errorf("%s %s: %v", method, template, err)
		return
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(answer))
	if err != nil {
		t.Errorf("%s %s answers no JSON: %v", method, template, err)
		return
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%s %s is not answered as the document says: %v\n%s", method, template, err, answer)
	}
}
