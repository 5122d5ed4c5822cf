package httpapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/httpd/console"
	"weir/cmd/weir/internal/httpd/httpintake"
	"weir/ingest"
)

// TestDocumentIsUpToDate checks that the served document agrees with the table of routes and the types.
// UPDATE_OPENAPI=1 writes the document.
func TestDocumentIsUpToDate(t *testing.T) {
	want, err := json.MarshalIndent(newDocument(t), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if os.Getenv("UPDATE_OPENAPI") != "" {
		if err := os.WriteFile("openapi.json", want, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(want, document) {
		t.Error("openapi.json is not what routes and types say: UPDATE_OPENAPI=1 go test ./cmd/weir/internal/httpd/httpapi -run Document")
	}
}

// TestEveryRouteIsDescribed checks that each line of the table has a unique name, a summary and an answer, and declares
// the parameters of its path.
func TestEveryRouteIsDescribed(t *testing.T) {
	names := map[string]bool{}
	for _, r := range new(API).table() {
		if r.name == "" || names[r.name] || r.summary == "" || r.answer == nil || (r.serve == nil) == (r.stream == nil) {
			t.Errorf("%s %s: name %q, summary %q, answer %T", r.method, r.path, r.name, r.summary, r.answer)
		}
		names[r.name] = true
		if r.role == console.Anybody || r.method != http.MethodGet && r.role != console.Operator && r.name != "checkConfig" {
			t.Errorf("%s %s is allowed for the role %s", r.method, r.path, r.role)
		}
		if r.mostBody() > jsonBody && r.atOnce == 0 {
			t.Errorf("%s %s takes large bodies, and any number of them at a time", r.method, r.path)
		}
	}
}

type object = map[string]any

// writer builds the document.
type writer struct {
	t       *testing.T
	paths   object
	schemas object
	names   map[reflect.Type]string
	said    map[string]string   // comments of types and fields, by package.Type and package.Type.field
	words   map[string][]string // constants of string types
}

func newDocument(t *testing.T) object {
	t.Helper()
	w := &writer{t: t, paths: object{}, schemas: object{}, names: map[reflect.Type]string{}, said: map[string]string{}, words: map[string][]string{}}
	w.readSources("../../../../..")
	w.words["console.Role"] = []string{string(console.Anybody), string(console.Producer), string(console.Viewer), string(console.Operator), string(console.Local)}
	w.schema(reflect.TypeOf(console.Problem{}))
	for _, r := range new(API).table() {
		w.operation(r.method, base+r.path, w.described(&r))
	}
	w.sessions()
	w.door()
	return object{
		"openapi": "3.1.0", "paths": w.paths,
		"info": object{
			"title": "weir", "version": "1",
			"description": "The questions and operations of weir's commands, and jobs of producers without NATS. " +
				"A request needs a token (WEIR_HTTP_TOKEN, or one under http.tokens in the configuration) or the cookie of a session. On a loopback address without a configured token it needs neither.",
		},
		"servers":  []any{object{"url": "/"}},
		"tags":     listedTags(),
		"security": []any{object{"token": []any{}}, object{"session": []any{}}},
		"components": object{
			"schemas": w.schemas,
			"securitySchemes": object{
				"token":   object{"type": "http", "scheme": "bearer"},
				"session": object{"type": "apiKey", "in": "cookie", "name": "weir_session", "description": "of POST /api/v1/login"},
			},
			"responses": object{"Problem": object{
				"description": "What went wrong, and what to do (RFC 9457). 503 has Retry-After",
				"headers":     headersNamed("Retry-After"),
				"content":     object{"application/problem+json": object{"schema": ref("Problem")}},
			}},
		},
	}
}

// tags group the operations by the first part of their path after /api/v1.
var tags = []struct{ name, about, parts string }{
	{"Producers", "Jobs of producers without NATS", "v1"},
	{"Overview", "The state of weir", "status apis limits replicas doctor version events history stream openapi.json"},
	{"Buckets", "The buckets of an api, pauses and holds", "keys key pause resume"},
	{"Jobs", "Where a job is, its result, and its cancellation", "jobs results"},
	{"Dead letters", "Letters: list, count, export, import, purge, inquiries", "dead"},
	{"Redrives", "Redrives of letters", "redrives"},
	{"Configuration", "The configuration in force, its versions, and changes to it", "config"},
	{"Accounts", "Spending, plans and verification", "spend use plan outlook verify"},
	{"Sessions", "Sessions of the console", "login logout session"},
}

func tagOf(path string) string {
	parts := strings.Split(strings.Trim(strings.TrimPrefix(path, base), "/"), "/")
	if parts[0] == "apis" && len(parts) > 2 {
		parts = parts[2:] // after the api's name
	}
	for _, t := range tags {
		if slices.Contains(strings.Fields(t.parts), parts[0]) {
			return t.name
		}
	}
	panic("no tag is for " + path)
}

func listedTags() (all []any) {
	for _, t := range tags {
		all = append(all, object{"name": t.name, "description": t.about})
	}
	return all
}

func ref(name string) object { return object{"$ref": "#/components/schemas/" + name} }

// operation adds an operation. last describes the last parameter of the path.
func (w *writer) operation(method, path string, op object, last ...string) {
	item, ok := w.paths[path].(object)
	if !ok {
		item = object{}
		w.paths[path] = item
	}
	var parameters []any
	for _, m := range regexp.MustCompile(`{(\w+)}`).FindAllStringSubmatch(path, -1) {
		parameters = append(parameters, object{"name": m[1], "in": "path", "required": true, "schema": object{"type": "string"}, "description": "percent-encoded"})
	}
	if n := len(parameters); n > 1 && len(last) > 0 {
		parameters[n-1].(object)["description"] = last[0] //nolint:forcetypeassert // it was just made
	}
	op["tags"] = []string{tagOf(path)}
	if more, ok := op["parameters"].([]any); ok {
		parameters = append(parameters, more...)
	}
	if op["parameters"] = parameters; parameters == nil {
		delete(op, "parameters")
	}
	item[strings.ToLower(method)] = op
}

func (w *writer) described(r *route) object {
	kind := "application/json"
	if r.name == "stream" {
		kind = "text/event-stream"
	}
	kind = cmp.Or(r.answerType, kind)
	problems := object{"$ref": "#/components/responses/Problem"}
	op := object{
		"operationId": r.name, "summary": r.summary, "x-weir-role": string(r.role),
		"responses": object{"200": answered("OK", kind, w.schema(reflect.TypeOf(r.answer))), "4XX": problems, "5XX": problems},
	}
	var parameters []any
	for _, p := range r.query {
		schema := object{"type": string(p.kind)}
		switch {
		case p.kind == instant:
			schema["type"] = "string"
		case p.kind == number:
			schema["minimum"], schema["maximum"], schema["default"] = 1, p.most, p.usual
		case p.words != nil:
			schema["enum"] = p.words
		}
		parameters = append(parameters, object{"name": p.name, "in": "query", "description": p.summary, "schema": schema})
	}
	op["parameters"] = parameters
	if r.name == "stream" {
		op["parameters"] = []any{object{"name": "Last-Event-ID", "in": "header", "description": "the id of the last event that was heard", "schema": object{"type": "string"}}}
	}
	if r.body != nil {
		op["requestBody"] = object{"required": true, "content": object{cmp.Or(r.bodyType, "application/json"): object{"schema": w.schema(reflect.TypeOf(r.body))}}}
	}
	return op
}

func answered(what, kind string, schema object) object {
	return object{"description": what, "content": object{kind: object{"schema": schema}}}
}

// sessions describes login and logout.
func (w *writer) sessions() {
	session := w.schema(reflect.TypeOf(console.Session{}))
	problem := object{"$ref": "#/components/responses/Problem"}
	w.operation("POST", base+"/login", object{
		"operationId": "login", "summary": "Begin a session: the request has a token, and the answer sets a cookie that no script can read", "security": []any{}, "x-weir-role": "anybody",
		"requestBody": object{"required": true, "content": object{"application/json": object{"schema": w.schema(reflect.TypeOf(console.Login{}))}}},
		"responses":   object{"200": answered("Logged in", "application/json", session), "4XX": problem, "5XX": problem},
	})
	w.operation("POST", base+"/logout", object{
		"operationId": "logout", "summary": "End the session", "security": []any{}, "x-weir-role": "anybody",
		"responses": object{"204": object{"description": "Logged out"}, "4XX": problem, "5XX": problem},
	})
	w.operation("GET", base+"/session", object{
		"operationId": "getSession", "summary": "The user of the request, and its role", "security": []any{}, "x-weir-role": "anybody",
		"responses": object{"200": answered("OK", "application/json", session), "4XX": problem, "5XX": problem},
	})
}

// door describes jobs over HTTP. For OpenAPI, two paths that differ only in a parameter's name are the same path. So a
// key and an id share one name there.
func (w *writer) door() {
	text := object{"type": "string"}
	headers := []any{object{"name": "Idempotency-Key", "in": "header", "schema": text, "description": "the job's id, with or without quotes: another name of Nats-Msg-Id. The same id for the same key within dedupe is the same job"}}
	for _, name := range []string{
		"Nats-Msg-Id", "Weir-Job-Id", "Weir-Method", "Weir-Path", "Weir-Query", "Weir-Deadline", "Weir-Not-Before", "Weir-Priority", "Weir-Cost", "Weir-Reply-To", "Weir-On-Throttled",
		"traceparent", "tracestate", "baggage",
	} {
		headers = append(headers, object{"name": name, "in": "header", "schema": text, "description": "as on NATS (weir help jobs)"})
	}
	problem := func(what string, with ...string) object {
		answer := answered(what, "application/problem+json", w.schema(reflect.TypeOf(httpintake.Problem{})))
		if len(with) > 0 {
			answer["headers"] = headersNamed(with...)
		}
		return answer
	}
	accepted := answered("Accepted: the stream has stored the job, or had it already (duplicate)", "application/json", w.schema(reflect.TypeOf(ingest.Receipt{})))
	accepted["headers"] = headersNamed("Location", "RateLimit", "RateLimit-Policy")
	for path, name := range map[string]string{"/v1/jobs/{api}/{name}": "postJob", "/v1/jobs/{api}": "postJobWithoutKey"} {
		w.operation("POST", path, object{
			"operationId": name, "summary": "Submit a job: the body is the job's, headers as on NATS. The answer comes when the stream has stored it", "x-weir-role": "producer", "parameters": headers,
			"requestBody": object{"content": object{"*/*": object{}}},
			"responses": object{
				"202": accepted,
				"429": problem("The bucket is full, the wait would be too long, or an admission limit refused the job. type is the quota's, retry_after_ms says when to try again",
					"Retry-After", "RateLimit", "RateLimit-Policy"),
				"503": problem("Nothing was stored: try again", "Retry-After"),
				"504": problem("The job may have been stored: ask for it, or send it again under its id", "Retry-After", "Location"),
				"4XX": problem("The job was refused. It is a dead letter if the answer has dead_letter_seq"), "5XX": problem("What went wrong in weir"),
			},
		}, "the job's key, percent-encoded")
	}
	w.operation("GET", "/v1/jobs/{api}/{name}", object{
		"operationId": "getJob", "summary": "Where a job is, and its result once it is done", "x-weir-role": "producer",
		"parameters": []any{object{"name": "key", "in": "query", "description": "the job's key: then only what is of it is read", "schema": text}},
		"responses": object{
			"200": answered("OK", "application/json", w.schema(reflect.TypeOf(httpintake.State{}))), "404": problem("There is no such job, or it has been forgotten"),
			"409": problem("The id exists under several keys: keys names them"), "4XX": problem("The question is wrong, or not allowed"),
			"5XX": problem("It could not be looked up: try again", "Retry-After"),
		},
	}, "the job's id, percent-encoded")
}

// headersNamed describes headers of answers, by name.
func headersNamed(names ...string) object {
	what := map[string]object{
		"Location":         {"description": "where the job can be asked for", "schema": object{"type": "string", "format": "uri-reference"}},
		"Retry-After":      {"description": "in how many seconds to come back", "schema": object{"type": "integer", "minimum": 1}},
		"RateLimit":        {"description": "how many more jobs fit into the key's bucket, and in how many seconds that changes (IETF draft 10)", "schema": object{"type": "string", "examples": []any{`"bucket";r=496;t=1`}}},
		"RateLimit-Policy": {"description": "how many jobs fit into the key's bucket, and in how many seconds they drain (IETF draft 10)", "schema": object{"type": "string", "examples": []any{`"bucket";q=500;w=50`}}},
	}
	headers := object{}
	for _, name := range names {
		headers[name] = what[name]
	}
	return headers
}

// schema returns the schema of a type. A named type is a reference.
func (w *writer) schema(of reflect.Type) object {
	switch {
	case of == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case of == reflect.TypeFor[json.RawMessage]():
		return object{"type": "object"}
	}
	switch of.Kind() {
	case reflect.Pointer:
		return w.schema(of.Elem())
	case reflect.Struct:
		return ref(w.name(of))
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 {
			return object{"type": "string", "contentEncoding": "base64"}
		}
		return object{"type": "array", "items": w.schema(of.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": w.schema(of.Elem())}
	case reflect.String:
		if words := w.words[key(of)]; len(words) > 0 {
			return object{"type": "string", "enum": words}
		}
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return object{"type": "integer"}
	case reflect.Interface:
		return object{}
	}
	w.t.Fatalf("the document has no word for a %s", of)
	return nil
}

// key returns package.Type, under which said and words have a type.
func key(of reflect.Type) string { return of.String() }

// name adds a type to the schemas and returns its name there.
func (w *writer) name(of reflect.Type) string {
	if name, ok := w.names[of]; ok {
		return name
	}
	pkg, bare, _ := strings.Cut(of.String(), ".")
	name := strings.ToUpper(bare[:1]) + bare[1:]
	if _, taken := w.schemas[name]; taken {
		name = strings.ToUpper(pkg[:1]) + pkg[1:] + name
	}
	w.names[of], w.schemas[name] = name, nil
	properties, required := object{}, []string{}
	w.fields(of, properties, &required)
	slices.Sort(required)
	if of == reflect.TypeFor[ingest.Receipt]() { // as Receipt.Answer renders it
		properties["eta"] = object{"type": "string", "format": "date-time", "description": "when its call should start"}
		properties["eta_ms"] = object{"type": "integer", "description": "the same, from now"}
	}
	schema := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		schema["required"] = slices.Compact(required)
	}
	if said := w.said[key(of)]; said != "" {
		schema["description"] = said
	}
	w.schemas[name] = schema
	return name
}

func (w *writer) fields(of reflect.Type, properties object, required *[]string) {
	for i := range of.NumField() {
		f := of.Field(i)
		tag, omits, _ := strings.Cut(f.Tag.Get("json"), ",")
		kind := f.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		switch {
		case f.Anonymous && tag == "" && kind.Kind() == reflect.Struct:
			w.fields(kind, properties, required)
			continue
		case !f.IsExported() || tag == "-":
			continue
		case tag == "":
			tag = f.Name
		}
		schema := maps.Clone(w.schema(f.Type))
		if said := w.said[key(of)+"."+f.Name]; said != "" {
			schema["description"] = said
		}
		properties[tag] = schema
		if omits == "" && f.Type.Kind() != reflect.Pointer {
			*required = append(*required, tag)
		}
	}
}

// readSources reads the comments of types and their fields, and the constants of string types.
func (w *writer) readSources(root string) {
	files := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if group, ok := d.(*ast.GenDecl); ok {
				w.readGroup(file.Name.Name, group)
			}
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *writer) readGroup(pkg string, group *ast.GenDecl) {
	for _, spec := range group.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			doc := s.Doc
			if doc == nil {
				doc = group.Doc
			}
			w.said[pkg+"."+s.Name.Name] = oneLine(doc)
			if fields, ok := s.Type.(*ast.StructType); ok {
				for _, f := range fields.Fields.List {
					for _, name := range f.Names {
						w.said[pkg+"."+s.Name.Name+"."+name.Name] = strings.TrimSpace(oneLine(f.Doc) + " " + oneLine(f.Comment))
					}
				}
			}
		case *ast.ValueSpec:
			of, ok := s.Type.(*ast.Ident)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, v := range s.Values {
				if literal, ok := v.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					if word, err := strconv.Unquote(literal.Value); err == nil {
						w.words[pkg+"."+of.Name] = append(w.words[pkg+"."+of.Name], word)
					}
				}
			}
		}
	}
}

func oneLine(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }
