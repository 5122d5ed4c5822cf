package docs

import (
	"go/ast"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/cmd/weir/internal/config"

	"go.yaml.in/yaml/v3"
)

// section is a mapping of the configuration file, by the path that the topic heads it with.
type section struct {
	path  string
	build func(inner object) object // a file in which this mapping has those fields
	at    string                    // its path in the messages about that file
	base  object                    // what it cannot be without
}

// of is the file in which the section has the fields of base and these.
func (s section) of(fields object) object {
	inner := object{}
	for name, v := range s.base {
		inner[name] = v
	}
	for name, v := range fields {
		inner[name] = v
	}
	return s.build(inner)
}

// below is the section that a field of s holds.
func (s section) below(field, name, at string, base object, wrap func(inner object) any) section {
	path := strings.Trim(s.path+"."+field+"."+name, ".")
	return section{path: path, at: strings.Trim(s.at+"."+field+at, "."), base: base, build: func(inner object) object {
		return s.of(object{field: wrap(inner)})
	}}
}

func aMapping(inner object) any { return inner }

func aList(inner object) any { return []any{inner} }

func byName(inner object) any { return object{"some": inner} }

// unknownField is a name that no mapping has.
const unknownField = "zz-none"

// bases are what the sections cannot be without.
var bases = map[string]object{
	"apis.NAME":              {"url": "https://127.0.0.1", "bucket": object{"rate": "10/s", "capacity": 5}},
	"apis.NAME.idempotency":  {"header": "Idempotency-Key"},
	"apis.NAME.key":          {"from": "subject"},
	"apis.NAME.bucket":       {"rate": "10/s", "capacity": 5},
	"apis.NAME.limits":       {"name": "one", "rate": "20/s"},
	"apis.NAME.limits.cost":  {"from": 1},
	"apis.NAME.admit":        {"rate": "10/s"},
	"apis.NAME.keys.PATTERN": {"in_flight": 1},
	"apis.NAME.tls":          {"ca_file": "/ca.pem", "cert_file": "/own.pem"},
	"apis.NAME.inquiry": {
		"path": "/{job}", "auto": true, "answers": []any{object{"status": 404, "means": "not_processed"}},
	},
	"apis.NAME.inquiry.answers": {"status": 404, "means": "not_processed"},
	"http.tokens.NAME":          {"role": "viewer", "token": "${env:SOME}"},
	"notifications.webhook":     {"url": "https://127.0.0.1", "secret": "${env:SOME}"},
}

// names of what stands between a field and the mapping in it, in the topic's headings.
var freeNames = map[string]string{"apis": "NAME", "apis.NAME.keys": "PATTERN", "http.tokens": "NAME"}

// discover finds out, by asking the parser, which fields a section has and which of them are sections themselves.
func discover(t *testing.T, s section, candidates []string, found map[string]section) {
	t.Helper()
	all := object{unknownField: 1}
	for _, name := range candidates {
		all[name] = 1
	}
	unknown := map[string]bool{}
	for _, p := range parsed(t, s.build(all)) {
		if p.Message == "there is no such field" {
			unknown[p.Path] = true
		}
	}
	if !unknown[strings.Trim(s.at+"."+unknownField, ".")] {
		t.Fatalf("the parser takes a field %s in %q: mend this test", unknownField, s.path)
	}
	for _, name := range candidates {
		if unknown[strings.Trim(s.at+"."+name, ".")] {
			continue
		}
		found[strings.Trim(s.path+"."+name, ".")] = s
		field := strings.Trim(s.path+"."+name, ".")
		for _, shape := range []struct {
			name, at string
			wrap     func(object) any
		}{{"", "", aMapping}, {"", "[0]", aList}, {freeNames[field], ".some", byName}} {
			inner := s.below(name, shape.name, shape.at, nil, shape.wrap)
			inner.base = bases[inner.path]
			if slices.ContainsFunc(parsed(t, inner.build(object{unknownField: 1})), func(p config.Problem) bool {
				return p.Path == inner.at+"."+unknownField && p.Message == "there is no such field"
			}) {
				discover(t, inner, candidates, found)
				break
			}
		}
	}
}

// parsed is what is wrong with a file.
func parsed(t *testing.T, file object) []config.Problem {
	t.Helper()
	text, err := yaml.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	_, err = config.Parse(text, config.Options{})
	return problemsIn(err)
}

// configurationFields are all fields that the parser knows, by their paths.
func configurationFields(t *testing.T) map[string]section {
	t.Helper()
	var candidates []string
	for _, f := range parsedCode(t, "cmd/weir/internal/config") {
		ast.Inspect(f, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && regexp.MustCompile(`^"[a-z_]+"$`).MatchString(l.Value) && !slices.Contains(candidates, literal(l)) {
				candidates = append(candidates, literal(l))
			}
			return true
		})
	}
	found := map[string]section{}
	discover(t, section{build: func(inner object) object { return inner }}, candidates, found)
	return found
}

// configurationPaths are their paths.
func configurationPaths(t *testing.T) []string {
	t.Helper()
	return slices.Sorted(maps.Keys(configurationFields(t)))
}

// TestDocsOfConfiguration: the topic has every field that the parser knows, and no other; and of each the default, the range and the
// words that the parser takes.
func TestDocsOfConfiguration(t *testing.T) {
	t.Parallel()
	found := configurationFields(t)
	var code, named []string
	for path := range found {
		code = append(code, path)
	}
	if len(code) < 60 {
		t.Errorf("only %d fields were found: mend this test", len(code))
	}
	for _, r := range tableRows(t, "fields", "field") {
		name := inBackticks(r.cells[0])[0]
		path := strings.Trim(r.section+"."+name, ".")
		named = append(named, path)
		s, ok := found[path]
		if !ok {
			continue // reported below
		}
		for _, fix := range fixes(func(value string) []config.Problem {
			return append(parsed(t, s.of(object{name: value})), parsed(t, s.of(object{name: []any{value}}))...)
		}, strings.Trim(s.at+"."+name, "."), strings.Trim(s.at+"."+name, ".")+"[0]") {
			holdToFix(t, "fields", path, r.cell("values"), fix)
		}
		holdToDefault(t, s, path, name, r.cell("default"))
	}
	sameNames(t, "fields", code, named)
}

// holdToDefault holds a default that the topic names: a file that says it means what one means that does not, and a file that says
// something else, something else.
func holdToDefault(t *testing.T, s section, path, name, text string) {
	t.Helper()
	with := object{}
	switch path {
	case "apis.NAME.limits.window", "apis.NAME.limits.tz":
		with = object{"rate": nil, "quota": "5/day"}
	case "apis.NAME.limits.on_exhausted":
		with = object{"rate": nil, "budget": "5.00/day"}
	}
	file := func(value any) (*config.Config, error) {
		inner := object{}
		for n, v := range s.base {
			inner[n] = v
		}
		for n, v := range with {
			if inner[n] = v; v == nil {
				delete(inner, n)
			}
		}
		if delete(inner, name); value != nil {
			inner[name] = value
		}
		whole := s.build(inner)
		if path == "apis.NAME.limits.on_exhausted" {
			whole["apis"].(object)["some"].(object)["price"] = "0.10"
		}
		written, err := yaml.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		return config.Parse(written, config.Options{})
	}
	without, err := file(nil)
	if required := err != nil; required != (text == "required" || path == "apis.NAME.limits.rate" || s.path == "apis.NAME.keys.PATTERN" && name == "in_flight") {
		t.Errorf("topic configuration: the default of %s is %q, and a file without it is taken: %v %v", path, text, !required, err)
	}
	quoted := inBackticks(text)
	if err != nil || len(quoted) != 1 || text != "`"+quoted[0]+"`" {
		return
	}
	var value any
	if err := yaml.Unmarshal([]byte(quoted[0]), &value); err != nil {
		t.Fatal(err)
	}
	said, err := file(value)
	if err != nil {
		t.Errorf("topic configuration: %s cannot be %s: %v", path, quoted[0], err)
		return
	}
	for _, change := range without.Diff(said) {
		t.Errorf("topic configuration: %s is not the default of %s: %v", quoted[0], path, change)
	}
}
