package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

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

func (c Client) Document() *Document {
	c.T.Helper()
	status, text := c.Say("GET", "/api/v1/openapi.json", CanaryViewer, "")
	if status != http.StatusOK {
		c.T.Fatalf("the document: %d %s", status, text)
	}
	d := &Document{compiler: jsonschema.NewCompiler()}
	if err := json.Unmarshal([]byte(text), d); err != nil {
		c.T.Fatal(err)
	}
	// An answer must have no member that the document does not describe.
	strict := regexp.MustCompile(`"properties": \{`).ReplaceAllString(text, `"additionalProperties": false, "properties": {`)
	whole, err := jsonschema.UnmarshalJSON(strings.NewReader(strict))
	if err != nil {
		c.T.Fatal(err)
	}
	if err := d.compiler.AddResource("weir:openapi.json", whole); err != nil {
		c.T.Fatal(err)
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
