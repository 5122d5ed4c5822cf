package docs

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/field"
	"weir/cmd/weir/internal/config/problem"
	"weir/cmd/weir/weirtest"

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

// bases are what the sections cannot be without.
var bases = map[string]object{
	"accounts.NAME":             {"limits": []any{object{"rate": "20/s"}}},
	"accounts.NAME.limits":      {"name": "one", "rate": "20/s"},
	"accounts.NAME.limits.cost": {"from": 1},
	"apis.NAME":                 {"url": "https://127.0.0.1", "bucket": object{"rate": "10/s", "capacity": 5}},
	"apis.NAME.vendor":          {"name": "openai"},
	"apis.NAME.idempotency":     {"header": "Idempotency-Key"},
	"apis.NAME.key":             {"from": "subject"},
	"apis.NAME.bucket":          {"rate": "10/s", "capacity": 5},
	"apis.NAME.limits":          {"name": "one", "rate": "20/s"},
	"apis.NAME.limits.cost":     {"from": 1},
	"apis.NAME.price":           {"each": 1},
	"apis.NAME.admit":           {"rate": "10/s"},
	"apis.NAME.keys.PATTERN":    {"in_flight": 1},
	"apis.NAME.tls":             {"ca_file": "/ca.pem", "cert_file": "/own.pem"},
	"apis.NAME.callback":        {"url": "https://127.0.0.1", "secret": "${env:SOME}"},
	"apis.NAME.inquiry": {
		"path": "/{job}", "auto": true, "answers": []any{object{"status": 404, "means": "not_processed"}},
	},
	"apis.NAME.reuse":           {"for": "10m"},
	"apis.NAME.pack":            {"jobs": 50},
	"apis.NAME.pack.request":    {"under": "/requests"},
	"apis.NAME.pack.answers":    {"under": "/results"},
	"apis.NAME.inquiry.answers": {"status": 404, "means": "not_processed"},
	"apis.NAME.operation": {
		"poll": object{"path": "/{job}"}, "answers": []any{object{"status": 200, "means": "done"}},
	},
	"apis.NAME.operation.poll":    {"path": "/{job}"},
	"apis.NAME.operation.answers": {"status": 200, "means": "done"},
	"http.tokens.NAME":            {"role": "viewer", "token": "${env:SOME}"},
	"notifications.NAME":          {"url": "https://127.0.0.1", "secret": "${env:SOME}"},
}

// parsed is what is wrong with a file.
func parsed(t *testing.T, file object) []problem.Problem {
	t.Helper()
	text, err := yaml.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	_, err = config.Parse(text, config.Options{})
	return problemsIn(err)
}

// configurationFields are all fields of the registry, by their paths.
func configurationFields() map[string]section {
	found := map[string]section{}
	var add func(s section, of field.Table)
	add = func(s section, of field.Table) {
		for _, f := range of.Fields {
			path := strings.Trim(s.path+"."+f.Name, ".")
			if found[path] = s; f.Inner == nil {
				continue
			}
			below, at := strings.Trim(strings.TrimPrefix(f.Inner.Path, path), "."), ""
			wrap := func(inner object) any { return inner }
			if kinds, _ := f.Shape(object{})["type"].([]string); slices.Contains(kinds, "array") {
				wrap, at = func(inner object) any { return []any{inner} }, "[0]"
			} else if below != "" {
				wrap, at = func(inner object) any { return object{"some": inner} }, ".some"
			}
			add(s.below(f.Name, below, at, bases[f.Inner.Path], wrap), *f.Inner)
		}
	}
	add(section{build: func(inner object) object { return inner }}, config.File())
	return found
}

// configurationPaths are their paths.
func configurationPaths() []string { return slices.Sorted(maps.Keys(configurationFields())) }

// TestDocsOfConfiguration: the topic's tables are those of the registry of fields; and the parser takes the default, the range and
// the words that the registry has of each.
func TestDocsOfConfiguration(t *testing.T) {
	t.Parallel()
	holdToTables(t, "fields", fieldTables())
	found := configurationFields()
	for _, r := range tableRows(t, "fields", "field") {
		name := inBackticks(r.cells[0])[0]
		path := strings.Trim(r.section+"."+name, ".")
		s, ok := found[path]
		if !ok {
			continue // reported above
		}
		for _, fix := range fixes(func(value string) []problem.Problem {
			return append(parsed(t, s.of(object{name: value})), parsed(t, s.of(object{name: []any{value}}))...)
		}, strings.Trim(s.at+"."+name, "."), strings.Trim(s.at+"."+name, ".")+"[0]") {
			holdToFix(t, "fields", path, r.cell("values"), fix)
		}
		holdToDefault(t, s, path, name, r.cell("default"))
	}
}

// table is a table of a topic: the rows that belong under a heading.
type table struct{ heading, text string }

// fieldTables are the tables of all sections of the configuration.
func fieldTables() (all []table) {
	var add func(s field.Table)
	add = func(s field.Table) {
		heading := "## `" + s.Path + "`"
		if s.Path == "" {
			heading = "## The file"
		}
		all = append(all, tableOf(heading, "field", s.Fields))
		for _, f := range s.Fields {
			if f.Inner != nil {
				add(*f.Inner)
			}
		}
	}
	add(config.File())
	return all
}

func tableOf(heading, first string, fields []field.Row) table {
	text := "| " + first + " | default | values | meaning |\n|---|---|---|---|\n"
	for _, f := range fields {
		text += strings.ReplaceAll("| `"+f.Name+"` | "+f.Default+" | "+f.Values+" | "+f.Meaning+" |\n", "|  |", "| |")
	}
	return table{heading, text}
}

// holdToTables compares the tables of a topic with those that weir's code has. UPDATE_GOLDEN=1 writes them into the topic.
func holdToTables(t *testing.T, topic string, tables []table) {
	t.Helper()
	path := filepath.Join(weirtest.Repository, "cmd/weir/internal/cli/help", topic+".md")
	text := weirtest.MustRead(t, path)
	wanted, end := text, 0
	first, _, _ := strings.Cut(tables[0].text, " default")
	for _, of := range tables {
		at := strings.Index(wanted, "\n"+of.heading+"\n")
		if at < 0 {
			wanted = wanted[:end] + "\n" + of.heading + "\n\n" + of.text + wanted[end:]
			end += len(of.heading) + len(of.text) + 3
			continue
		}
		begin := strings.Index(wanted[at:], "\n"+first) + at + 1
		end = begin
		for strings.HasPrefix(wanted[end:], "|") {
			end += strings.Index(wanted[end:], "\n") + 1
		}
		wanted = wanted[:begin] + of.text + wanted[end:]
		end = begin + len(of.text)
		if next := strings.Index(wanted[end:], "\n## "); next >= 0 {
			end += next
		} else {
			end = len(wanted)
		}
	}
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(wanted), 0o644); err != nil { //nolint:gosec // it is for everybody
			t.Fatal(err)
		}
		return
	}
	for line := range strings.Lines(wanted) {
		if !strings.Contains(text, line) {
			t.Errorf("topic %s lacks the line of the registry: %s", topic, line)
		}
	}
	if text != wanted {
		t.Errorf("the tables of topic %s are not the registry's: make fields writes them anew", topic)
	}
	for _, heading := range regexp.MustCompile("(?m)^## `.*$").FindAllString(text, -1) {
		if !slices.ContainsFunc(tables, func(of table) bool { return of.heading == heading }) {
			t.Errorf("topic %s has the section %s, which the registry does not have", topic, heading)
		}
	}
}

// holdToDefault holds a default that the topic names: a file that says it means what one means that does not, and a file that says
// something else, something else.
func holdToDefault(t *testing.T, s section, path, name, text string) {
	t.Helper()
	with := object{}
	switch path {
	case "apis.NAME.limits.window", "apis.NAME.limits.tz", "accounts.NAME.limits.window", "accounts.NAME.limits.tz":
		with = object{"rate": nil, "quota": "5/day"}
	case "notifications.NAME.secret":
		with = object{"format": "slack", "url": "${env:CHAT_URL}"}
	case "apis.NAME.weight":
		with = object{"account": "some"}
	case "apis.NAME.limits.on_exhausted", "accounts.NAME.limits.on_exhausted":
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
		if path == "apis.NAME.weight" {
			whole["accounts"] = object{"some": bases["accounts.NAME"]}
		}
		written, err := yaml.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		return config.Parse(written, config.Options{})
	}
	without, err := file(nil)
	if required := err != nil; required != (text == "required" || strings.HasSuffix(path, "s.NAME.limits.rate") || s.path == "apis.NAME.keys.PATTERN" && name == "in_flight") {
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
