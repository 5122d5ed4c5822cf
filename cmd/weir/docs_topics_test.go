package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/help"
	"weir/deadletter"
	"weir/dispatcher"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/ingest"
)

// The tests of the reference, which `weir help` shows: what the code has by a name that users meet, its topic names, and what a topic
// names, the code has. Both lists are taken from the code and the text, and compared.

// topicText is a topic's Markdown.
func topicText(t *testing.T, name string) string {
	t.Helper()
	topic, ok := help.Lookup(name)
	if !ok {
		t.Fatalf("there is no topic %s", name)
	}
	return topic.Text()
}

// row is a row of a topic's table: its cells, the names of its columns, and what the heading above it names in backticks.
type row struct {
	cells   []string
	columns []string
	section string
}

// cell is the row's text in a column; "" where the table has none of that name.
func (r row) cell(column string) string {
	if i := slices.Index(r.columns, column); i >= 0 {
		return r.cells[i]
	}
	return ""
}

// tableRows are the rows of those tables of a topic whose first column has that name.
func tableRows(t *testing.T, topic, first string) []row {
	t.Helper()
	var rows []row
	var columns []string
	section := ""
	for line := range strings.Lines(topicText(t, topic)) {
		line = strings.TrimSpace(line)
		if heading, ok := strings.CutPrefix(line, "#"); ok {
			section = strings.Join(inBackticks(heading), " ")
		}
		switch cells := tableCells(line); {
		case cells == nil:
			columns = nil
		case columns == nil:
			columns = cells
		case columns[0] == first && !strings.HasPrefix(cells[0], "---"):
			rows = append(rows, row{cells: cells, columns: columns, section: section})
		}
	}
	if len(rows) == 0 {
		t.Fatalf("topic %s has no table whose first column is called %q", topic, first)
	}
	return rows
}

// tableCells are the cells of a row of a table, nil for any other line.
func tableCells(line string) []string {
	if !strings.HasPrefix(line, "|") {
		return nil
	}
	cells := strings.Split(strings.Trim(line, "|"), "|")
	for i, c := range cells {
		cells[i] = strings.TrimSpace(c)
	}
	return cells
}

// inBackticks are the texts that stand in backticks.
func inBackticks(text string) []string {
	var all []string
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// namedIn are the names in backticks in the first cells of rows.
func namedIn(rows []row) []string {
	var all []string
	for _, r := range rows {
		all = append(all, inBackticks(r.cells[0])...)
	}
	return all
}

// sameNames compares what the code has with what a topic names: each must have all of the other, and once.
func sameNames(t *testing.T, topic string, code, named []string) {
	t.Helper()
	if len(code) == 0 {
		t.Fatalf("nothing was found in the code for topic %s: mend this test", topic)
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(code))) {
		if !slices.Contains(named, name) {
			t.Errorf("topic %s does not name %s, which the code has", topic, name)
		}
	}
	times := map[string]int{}
	for _, name := range named {
		times[name]++
	}
	for _, name := range slices.Sorted(maps.Keys(times)) {
		if !slices.Contains(code, name) {
			t.Errorf("topic %s names %s, which the code does not have", topic, name)
		}
		if times[name] > 1 {
			t.Errorf("topic %s has %d rows of %s", topic, times[name], name)
		}
	}
}

// parsedCode is every file of weir's own code below these directories, without tests and without what is not shipped.
func parsedCode(t *testing.T, dirs ...string) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
			if err == nil && !onlyForTorture(f) {
				files[path] = f
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// onlyForTorture reports whether a file is built with the tag torture only.
func onlyForTorture(f *ast.File) bool {
	for _, group := range f.Comments {
		for _, c := range group.List {
			if x, err := constraint.Parse(c.Text); err == nil && !x.Eval(func(tag string) bool { return tag != "torture" }) {
				return true
			}
		}
	}
	return false
}

// shipped are the directories of what the binary weir is made of.
var shipped = []string{"ingest", "bucket", "deadletter", "dispatcher", "cmd/weir"}

// constants are the constants of these directories by name, as written: those that choose says.
func constants(t *testing.T, choose func(name, kind string) bool, dirs ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, f := range parsedCode(t, dirs...) {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, s := range g.Specs {
				spec := s.(*ast.ValueSpec)
				kind := ""
				if of, ok := spec.Type.(*ast.Ident); ok {
					kind = of.Name
				}
				for i, name := range spec.Names {
					if i < len(spec.Values) && choose(name.Name, kind) && found[name.Name] == "" { // a room may have another's under the same name
						found[name.Name] = literal(spec.Values[i])
					}
				}
			}
		}
	}
	return found
}

// literal is what a literal says, "" for any other expression.
func literal(x ast.Expr) string {
	l, ok := x.(*ast.BasicLit)
	if !ok {
		return ""
	}
	if text, err := strconv.Unquote(l.Value); err == nil {
		return text
	}
	return l.Value
}

func TestDocsOfExitCodes(t *testing.T) {
	codes := []string{"0"}
	for _, value := range constants(t, func(name, _ string) bool { return regexp.MustCompile(`^(?i:exit)[A-Z]`).MatchString(name) }, "cmd/weir") {
		codes = append(codes, value)
	}
	if len(codes) < 6 {
		t.Errorf("only the codes %v were found: mend this test", codes)
	}
	var named []string
	for _, r := range tableRows(t, "exit-codes", "code") {
		named = append(named, r.cells[0])
	}
	sameNames(t, "exit-codes", codes, named)
}

// TestDocsTopicsHideNoCommands: where a command has a topic's name, weir help NAME shows both.
func TestDocsTopicsHideNoCommands(t *testing.T) {
	both := 0
	for _, c := range rootCommand().Commands() {
		for _, name := range append(c.Aliases, c.Name()) {
			topic, ok := help.Lookup(name)
			if !ok {
				continue
			}
			both++
			root, out := rootCommand(), &strings.Builder{}
			root.SetOut(out)
			root.SetArgs([]string{"help", name})
			if err := root.Execute(); err != nil || !strings.Contains(out.String(), topic.Text()) || !strings.Contains(out.String(), c.Long+"\n\nUsage:\n  "+c.UseLine()) {
				t.Errorf("%s is a command and a topic, and help shows %q (%v)", name, out, err)
			}
		}
	}
	if both == 0 {
		t.Error("no topic has the name of a command: mend this test")
	}
}

// TestDocsOfVariables: every variable of weir, with its default and what it may be; and every other that its code asks for.
func TestDocsOfVariables(t *testing.T) {
	plainEnvironment(t)
	t.Chdir(t.TempDir()) // there is no weir.yaml
	s, err := config.ReadSettings()
	if err != nil {
		t.Fatal(err)
	}
	var code, named []string
	defaults := map[string]string{}
	for _, v := range s.Redacted() {
		code, defaults[v.Name] = append(code, v.Name), v.Value
	}
	for _, r := range tableRows(t, "environment", "variable") {
		name := inBackticks(r.cells[0])[0]
		if r.cell("read by") != "" {
			continue
		}
		named = append(named, name)
		if quoted := inBackticks(r.cell("default")); len(quoted) == 1 && r.cell("default") == "`"+quoted[0]+"`" && !sameList(quoted[0], defaults[name]) {
			t.Errorf("topic environment: the default of %s is %q, not %q", name, defaults[name], quoted[0])
		} else if r.cell("default") == "empty" && defaults[name] != "" {
			t.Errorf("topic environment: the default of %s is %q", name, defaults[name])
		}
		for _, fix := range fixes(func(value string) []config.Problem {
			t.Setenv(name, value)
			defer os.Unsetenv(name)
			_, err := config.ReadSettings()
			return problemsIn(err)
		}, name) {
			holdToFix(t, "environment", name, r.cell("values"), fix)
		}
	}
	sameNames(t, "environment", code, named)
}

func TestDocsOfVariablesOfOthers(t *testing.T) {
	var code, named []string
	for _, f := range parsedCode(t, shipped...) {
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 1 {
				return true
			}
			if of, ok := call.Fun.(*ast.SelectorExpr); ok && (of.Sel.Name == "Getenv" || of.Sel.Name == "LookupEnv") {
				if name := literal(call.Args[0]); name != "" && !strings.HasPrefix(name, "WEIR_") {
					code = append(code, name)
				}
			}
			return true
		})
	}
	for _, r := range tableRows(t, "environment", "variable") {
		if r.cell("read by") != "" {
			named = append(named, inBackticks(r.cells[0])...)
		}
	}
	sameNames(t, "environment", code, named)
}

// plainEnvironment takes weir's variables out of the test's environment.
func plainEnvironment(t *testing.T) {
	t.Helper()
	for _, pair := range os.Environ() {
		if name, value, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "WEIR_") {
			t.Setenv(name, value) // so that it is put back
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// tooMuch are values that are out of every range, or no word that anything knows: what refuses them says what it takes.
var tooMuch = []string{"99999999999999", "100000d", "100000TiB", "100000%", "no-such-word"}

// fixes are the ways out that are offered where set is given impossible values, for what has one of those paths. Where the lower end
// of a range that is offered is refused as well, what is offered then stands in its place.
func fixes(set func(value string) []config.Problem, paths ...string) []string {
	offered := func(value string) []string {
		var all []string
		for _, p := range set(value) {
			if slices.Contains(paths, p.Path) {
				all = append(all, p.Fix)
			}
		}
		return all
	}
	var all []string
	for _, value := range tooMuch {
		for _, fix := range offered(value) {
			if m := rangeInFix.FindStringSubmatch(fix); m != nil {
				if better := offered(m[1]); slices.ContainsFunc(better, rangeInFix.MatchString) {
					all = append(all, better...)
					continue
				}
			}
			all = append(all, fix)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// sameList compares lists with commas, whose order says nothing.
func sameList(a, b string) bool {
	x, y := strings.Split(a, ","), strings.Split(b, ",")
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

func problemsIn(err error) []config.Problem {
	var wrong *config.Errors
	if errors.As(err, &wrong) {
		return wrong.Problems
	}
	return nil
}

var (
	rangeInFix = regexp.MustCompile(`(\d[\w%]*) to (\d[\w%]*)(?:$|,)`)
	wordsInFix = regexp.MustCompile(`^it can (?:only )?be (.*)$`)
)

// holdToFix holds what a topic says of a value to what its parser says: the same range, the same words.
func holdToFix(t *testing.T, topic, name, text, fix string) {
	t.Helper()
	if m := rangeInFix.FindStringSubmatch(fix); m != nil && !strings.Contains(text, m[1]+" to "+m[2]) {
		t.Errorf("topic %s: of %s it says %q, its parser %q", topic, name, text, fix)
	}
	if m := wordsInFix.FindStringSubmatch(fix); m != nil {
		for word := range strings.SplitSeq(strings.ReplaceAll(m[1], " or ", ", "), ", ") {
			if !slices.Contains(inBackticks(text), word) {
				t.Errorf("topic %s: of %s it does not say that it may be %s: %q", topic, name, word, text)
			}
		}
	}
}

func TestDocsOfReasons(t *testing.T) {
	var code []string
	for _, reason := range deadletter.Reasons() {
		code = append(code, string(reason))
	}
	sameNames(t, "dead-letters", code, namedIn(tableRows(t, "dead-letters", "reason")))
	sameNames(t, "dead-letters", valuesOf(t, "Skip", "deadletter"), namedIn(tableRows(t, "dead-letters", "left alone")))
}

// TestDocsOfLimitKinds: the topic has a row for each kind of shared limit, says how many there are, and the message for an entry
// of no kind names them all.
func TestDocsOfLimitKinds(t *testing.T) {
	var code []string
	for _, kind := range bucket.Kinds() {
		code = append(code, string(kind))
	}
	sameNames(t, "limits", valuesOf(t, "Kind", "bucket"), code)
	sameNames(t, "limits", code, namedIn(tableRows(t, "limits", "kind")))
	numbers := []string{"none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"}
	if want := "is one of " + numbers[len(code)] + ";"; !strings.Contains(topicText(t, "limits"), want) {
		t.Errorf("topic limits does not say that an entry of limits %q", want)
	}
	some := object{"url": "http://127.0.0.1", "bucket": object{"rate": "10/s", "capacity": 5}, "limits": []any{object{"name": "bare"}}}
	problems := parsed(t, object{"apis": object{"some": some}})
	for _, kind := range code {
		if !slices.ContainsFunc(problems, func(p config.Problem) bool { return strings.Contains(p.Fix, kind) }) {
			t.Errorf("who writes a limit of no kind is not told of %s: %q", kind, problems)
		}
	}
}

// valuesOf are the values of all constants of a type.
func valuesOf(t *testing.T, kind string, dirs ...string) []string {
	t.Helper()
	return slices.Collect(maps.Values(constants(t, func(_, of string) bool { return of == kind }, dirs...)))
}

func TestDocsOfEvents(t *testing.T) {
	data := eventData(t)
	var named []string
	for _, r := range tableRows(t, "events", "type") {
		kind := inBackticks(r.cells[0])[0]
		if named = append(named, kind); data[kind] == nil {
			t.Errorf("topic events names %s, and no comment says which struct is what such an event tells", kind)
			continue
		}
		sameNames(t, "events ("+kind+")", data[kind], inBackticks(r.cell("data")))
	}
	sameNames(t, "events", valuesOf(t, "EventType", "deadletter"), named)
	sameNames(t, "events", jsonNames(declared(t, "message", "deadletter", func(f *ast.FuncDecl) bool {
		if f.Recv == nil {
			return false
		}
		of, ok := f.Recv.List[0].Type.(*ast.Ident)
		return ok && of.Name == "Event"
	})), namedIn(tableRows(t, "events", "field")))
}

// eventData are the fields of what events tell, by their types: the struct's comment says of which.
func eventData(t *testing.T) map[string][]string {
	t.Helper()
	says := regexp.MustCompile(`is what (?:an? )?(\w+)(?: and (\w+))? events? tells?\b`)
	data := map[string][]string{}
	for _, f := range parsedCode(t, shipped...) {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.TYPE {
				continue
			}
			if m := says.FindStringSubmatch(strings.Join(strings.Fields(g.Doc.Text()), " ")); m != nil {
				for _, kind := range m[1:] {
					data[kind] = append(data[kind], jsonNames(g)...)
				}
			}
		}
	}
	return data
}

// fieldsOfType are the names in JSON of a struct's fields, wherever it is declared below these directories.
func fieldsOfType(t *testing.T, name string, dirs ...string) []string {
	t.Helper()
	var names []string
	for _, f := range parsedCode(t, dirs...) {
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.TYPE {
				for _, s := range g.Specs {
					if spec := s.(*ast.TypeSpec); strings.EqualFold(spec.Name.Name, name) {
						names = append(names, jsonNames(spec)...)
					}
				}
			}
		}
	}
	return names
}

// declared is the body of a function of that name that is so.
func declared(t *testing.T, name, dir string, so func(*ast.FuncDecl) bool) ast.Node {
	t.Helper()
	for _, f := range parsedCode(t, dir) {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == name && so(fn) {
				return fn.Body
			}
		}
	}
	t.Fatalf("%s has no function %s any more: mend this test", dir, name)
	return nil
}

// jsonNames are the names in JSON of all fields below a node.
func jsonNames(n ast.Node) []string {
	var names []string
	ast.Inspect(n, func(n ast.Node) bool {
		if f, ok := n.(*ast.Field); ok && f.Tag != nil {
			tag := reflect.StructTag(literal(f.Tag)).Get("json")
			if name, _, _ := strings.Cut(tag, ","); name != "" && name != "-" {
				names = append(names, name)
			}
		}
		return true
	})
	return names
}

// headersOf are the headers that a package has constants for.
func headersOf(t *testing.T, dir string) []string {
	t.Helper()
	var headers []string
	of := func(name, _ string) bool { return regexp.MustCompile(`^(?i:header)[A-Z]`).MatchString(name) }
	for name, value := range constants(t, of, dir) {
		switch {
		case value == "Nats-Msg-Size": // which a consumer of headers adds, and weir reads
		case regexp.MustCompile(`^[A-Za-z-]+$`).MatchString(value):
			headers = append(headers, value)
		case value == "" && name != "HeaderOutcome" && name != "HeaderRoom":
			t.Errorf("%s: the constant %s is not read by this test", dir, name)
		}
	}
	return headers
}

func TestDocsOfHeaders(t *testing.T) {
	byWeir := []string{ingest.HeaderAPI, ingest.HeaderKey, ingest.HeaderRedrives, ingest.HeaderOverSoft, ingest.HeaderJobNats, ingest.HeaderError, ingest.HeaderErrorCode}
	var ofJobs []string
	for _, h := range headersOf(t, "ingest") {
		if h == ingest.HeaderForward {
			h += "<Name>"
		}
		if !slices.Contains(byWeir, h) {
			ofJobs = append(ofJobs, h)
		}
	}
	sameNames(t, "jobs", ofJobs, namedIn(tableRows(t, "jobs", "header")))
	sameNames(t, "results", append(headersOf(t, "dispatcher/ledger"), ingest.HeaderJobID, ingest.HeaderAPI, ingest.HeaderKey, deadletter.HeaderOutcome, "Content-Type",
		ingest.HeaderTrace, ingest.HeaderTraceState),
		namedIn(tableRows(t, "results", "header")))
	ofLetters := append(headersOf(t, "deadletter"), ingest.HeaderJobID, ingest.HeaderAPI, ingest.HeaderKey, ingest.HeaderRedrives)
	ofLetters = slices.DeleteFunc(ofLetters, func(h string) bool { return h == deadletter.HeaderOutcome }) // of notices only
	sameNames(t, "dead-letters", ofLetters, namedIn(tableRows(t, "dead-letters", "header")))
	for _, h := range byWeir {
		if !strings.Contains(topicText(t, "jobs"), "`"+h) {
			t.Errorf("topic jobs does not name %s", h)
		}
	}
}

func TestDocsOfAnswers(t *testing.T) {
	var named []string
	for _, r := range tableRows(t, "jobs", "field") {
		named = append(named, inBackticks(r.cells[0])...)
		if r.cells[0] == "`error`" {
			named = append(named, inBackticks(r.cells[1])...)
		}
	}
	var code []string
	for path, f := range parsedCode(t, "ingest/client") {
		if slices.Contains([]string{"receipt.go", "refusal.go"}, filepath.Base(path)) {
			code = append(code, jsonNames(f)...)
		}
	}
	sameNames(t, "jobs", code, named)
	code, named = nil, nil
	for _, value := range valuesOf(t, "Code", "ingest") {
		if value != "0" { // no answer at all
			code = append(code, value)
		}
	}
	for _, r := range tableRows(t, "jobs", "err_code") {
		errCode := inBackticks(r.cells[0])[0]
		named = append(named, errCode)
		if !strings.HasSuffix(errCode, r.cell("code")) || len(r.cell("code")) != 3 {
			t.Errorf("topic jobs: %s does not end with %s", errCode, r.cell("code"))
		}
	}
	sameNames(t, "jobs", code, named)
}

func TestDocsOfRecords(t *testing.T) {
	rows := tableRows(t, "ledger", "field")
	sameNames(t, "ledger", fieldsOfType(t, "Record", "dispatcher/ledger"), namedIn(rows))
	inRow := func(field string) []string {
		i := slices.IndexFunc(rows, func(r row) bool { return r.cells[0] == "`"+field+"`" })
		return inBackticks(rows[max(i, 0)].cells[1])
	}
	sameNames(t, "ledger (answer)", fieldsOfType(t, "Answer", "deadletter"), inRow("answer"))
	sameNames(t, "ledger (outcome)", []string{ledger.Done, "retry", ledger.PushedBack, httpcall.DeniedCall, ledger.Asked}, inRow("outcome"))
	sameNames(t, "ledger (inquiry)", valuesOf(t, "Finding", "dispatcher/httpcall"), inRow("inquiry"))
	sameNames(t, "ledger (billed)", valuesOf(t, "Billed", "deadletter"), inRow("billed"))
}

// metricInSource finds where a metric is made: in its options, in a description, or by a helper that is called with its name.
var metricInSource = regexp.MustCompile(`(?s)(?:Name: *|\w+\()"(weir_[a-z_]+)", (?:Help:|")`)

func TestDocsOfMetrics(t *testing.T) {
	var code []string
	for path := range parsedCode(t, shipped...) {
		for _, m := range metricInSource.FindAllStringSubmatch(strings.Join(strings.Fields(mustRead(t, path)), " "), -1) {
			code = append(code, m[1])
		}
	}
	if len(code) < 24 {
		t.Errorf("only %d metrics were found in the source", len(code))
	}
	rows := tableRows(t, "metrics", "metric")
	sameNames(t, "metrics", code, namedIn(rows))
	outcomes := []string{ledger.Done, dispatcher.Duplicate, dispatcher.Deleted, dispatcher.Lost}
	for _, reason := range deadletter.Reasons() {
		if reason != deadletter.Overflow { // a job that overflows was never queued
			outcomes = append(outcomes, string(reason))
		}
	}
	for metric, values := range map[string][]string{
		"`weir_jobs_finished_total`": outcomes, "`weir_calls_total`": {ledger.Done, "retry", ledger.PushedBack, httpcall.DeniedCall},
	} {
		i := slices.IndexFunc(rows, func(r row) bool { return r.cells[0] == metric })
		sameNames(t, "metrics ("+metric+")", values, inBackticks(rows[max(i, 0)].cell("says")))
	}
}

// TestDocsOfMetricLabels compares the labels with those of a worker that runs.
func TestDocsOfMetricLabels(t *testing.T) {
	r := newRig(t, fakeapi.Options{}, "apis:\n  m:\n    url: %s\n    bucket: {rate: 100/s, capacity: 1}\n    limits: [{name: daily, quota: 1000/day}, {name: tried, quota: 500/day, shadow: true}]\n")
	r.submit("weir.jobs.m.k", nil, nil)
	r.submit("weir.jobs.m.k", nil, nil)
	r.awaitCalls(1)
	all, seen := exported(t, r), 0
	for _, row := range tableRows(t, "metrics", "metric") {
		metric := inBackticks(row.cells[0])[0]
		labels, ok := all[metric]
		if !ok {
			labels, ok = all[metric+"_count"]
		}
		if !ok {
			continue
		}
		seen++
		if got := slices.Sorted(maps.Keys(labels)); !slices.Equal(got, slices.Sorted(slices.Values(inBackticks(row.cell("labels"))))) {
			t.Errorf("topic metrics: %s has the labels %v, not %s", metric, got, row.cell("labels"))
		}
	}
	if seen < 22 {
		t.Errorf("only %d metrics of the topic are exported", seen)
	}
}

// codeIn are the pieces of code in a text: what stands in backticks, and the lines of blocks of code.
func codeIn(markdown string) []string {
	var all []string
	fenced := false
	for line := range strings.Lines(markdown) {
		switch line = strings.TrimRight(line, "\n"); {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
		case fenced, strings.HasPrefix(line, "    "):
			all = append(all, strings.TrimSpace(line))
		}
	}
	text := regexp.MustCompile("(?ms)^```.*?^```|^    .*?$").ReplaceAllString(markdown, "")
	for _, code := range inBackticks(text) {
		all = append(all, strings.Join(strings.Fields(code), " "))
	}
	return all
}

// TestDocsNameWhatThereIs: every variable, metric, stream, bucket, header, event, refusal, field of the configuration, command and flag
// that any document names in code is one that weir has.
func TestDocsNameWhatThereIs(t *testing.T) {
	literals := map[string]bool{}
	for _, f := range parsedCode(t, shipped...) {
		ast.Inspect(f, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				literals[literal(l)] = true
			}
			return true
		})
	}
	events, codes, paths := valuesOf(t, "EventType", "deadletter"), valuesOf(t, "Code", "ingest"), configurationPaths(t)
	fields := map[string]bool{}
	for _, path := range paths {
		for name := range strings.SplitSeq(path, ".") {
			fields[name] = true
		}
	}
	found := map[string]int{}
	for doc, text := range docFiles(t) {
		for _, code := range codeIn(text) {
			each := func(what, pattern string, known func(name string) bool) {
				for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(code, -1) {
					if found[what]++; !known(m[1]) {
						t.Errorf("%s: there is no %s %s: %s", doc, what, m[1], code)
					}
				}
			}
			each("variable or stream", `\b(WEIR_[A-Z][A-Z_]*[A-Z])\b`, func(name string) bool { return literals[name] })
			each("metric or bucket", `\b(weir_[a-z_]*[a-z])\b`, func(name string) bool { return literals[name] })
			each("event", `\bweir\.events\.([a-z]+)`, func(name string) bool { return slices.Contains(events, name) })
			each("refusal", `\b(20[45]\d\d)\b`, func(name string) bool { return slices.Contains(codes, name) })
			each("header", `((?:Weir|Nats)-[A-Z][A-Za-z-]*…?)`, func(name string) bool { return isHeader(name, literals) })
			each("field", `^([a-z_]+(?:\.[a-z_]+)+)(?::.*)?$`, func(path string) bool {
				first, _, _ := strings.Cut(path, ".")
				return !fields[first] || strings.HasSuffix(path, ".go") || slices.ContainsFunc(paths, func(p string) bool { return p == path || strings.HasSuffix(p, "."+path) })
			})
			each("flag", `^(--[a-z-]+)`, func(name string) bool {
				return !strings.Contains(doc, "/help/") || anyCommandHas(rootCommand(), name[2:]) // other documents speak of weir-torture, too
			})
			each("command", `(?:^|[ /])(weir [a-z][^|#]*)`, func(line string) bool { return checkCommand(line) == nil })
		}
	}
	for _, what := range []string{"variable or stream", "metric or bucket", "event", "refusal", "header", "field", "flag", "command"} {
		if found[what] < 3 {
			t.Errorf("only %d of what is called a %s were found: mend this test", found[what], what)
		}
	}
}

// isHeader reports whether weir's code knows a header, in any case: by its whole name, by a prefix, or where it ends in … by its beginning.
func isHeader(name string, literals map[string]bool) bool {
	begun, open := strings.CutSuffix(strings.ToLower(name), "…")
	for l := range literals {
		l = strings.ToLower(l)
		if l == begun || strings.HasSuffix(l, "-") && len(l) > len("weir-") && strings.HasPrefix(begun, l) || open && strings.HasPrefix(l, begun) {
			return true
		}
	}
	return false
}

// checkCommand says what is wrong with a command line of weir.
func checkCommand(line string) error {
	root := rootCommand()
	root.InitDefaultHelpCmd()
	cmd, rest, err := root.Find(strings.Fields(line)[1:])
	if err != nil {
		return err
	}
	if cmd.Name() == "help" && len(rest) == 1 && rest[0] != "TOPIC" {
		if _, ok := help.Lookup(rest[0]); ok {
			return nil
		}
		_, _, err := root.Find(rest)
		return err
	}
	if len(rest) > 0 && cmd.HasSubCommands() && !strings.HasPrefix(rest[0], "-") {
		return fmt.Errorf("%s has no command %s", cmd.CommandPath(), rest[0])
	}
	cmd.InitDefaultHelpFlag()
	for _, word := range rest {
		name, _, _ := strings.Cut(word, "=")
		if long, ok := strings.CutPrefix(name, "--"); ok && cmd.Flags().Lookup(long) == nil {
			return fmt.Errorf("%s has no flag %s", cmd.CommandPath(), word)
		}
		if short, ok := strings.CutPrefix(name, "-"); ok && len(short) == 1 && cmd.Flags().ShorthandLookup(short) == nil {
			return fmt.Errorf("%s has no flag %s", cmd.CommandPath(), word)
		}
	}
	return nil
}

// anyCommandHas reports whether a command, or one below it, has that flag.
func anyCommandHas(cmd *cobra.Command, flag string) bool {
	return cmd.Flags().Lookup(flag) != nil || slices.ContainsFunc(cmd.Commands(), func(c *cobra.Command) bool { return anyCommandHas(c, flag) })
}

func TestCheckCommand(t *testing.T) {
	for line, right := range map[string]bool{
		"weir dead ls --reason overflow": true, "weir config check -f weir.yaml": true, "weir help limits": true, "weir help dead": true, "weir help TOPIC": true,
		"weir dead lst": false, "weir deadd": false, "weir dead ls --raeson x": false, "weir config check -x": false, "weir help limit": false,
	} {
		if err := checkCommand(line); (err == nil) != right {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// TestDocsReadmeLeadsToEveryTopic: who reads the README finds what is not in it any more.
func TestDocsReadmeLeadsToEveryTopic(t *testing.T) {
	readme := docFiles(t)["README.md"]
	for _, topic := range help.Topics() {
		if !strings.Contains(readme, "["+topic.Name+"](cmd/weir/internal/help/"+topic.Name+".md)") {
			t.Errorf("README does not lead to the topic %s", topic.Name)
		}
	}
}
