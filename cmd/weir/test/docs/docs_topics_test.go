package docs

import (
	"go/ast"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli/commands"
	"weir/cmd/weir/internal/cli/help"
	"weir/cmd/weir/internal/config/problem"
	"weir/cmd/weir/weirtest"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
	"weir/ingest"
	"weir/ingest/client"
)

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
	for line := range strings.Lines(weirtest.TopicText(t, topic)) {
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

func TestDocsOfExitCodes(t *testing.T) {
	t.Parallel()
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

// TestDocsTopicsHideNoCommands: if a command has a topic's name, weir help NAME shows both.
func TestDocsTopicsHideNoCommands(t *testing.T) {
	t.Parallel()
	both := 0
	for _, c := range commands.Root().Commands() {
		for _, name := range append(c.Aliases, c.Name()) {
			topic, ok := help.Lookup(name)
			if !ok {
				continue
			}
			both++
			root, out := commands.Root(), &strings.Builder{}
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

func TestDocsOfReasons(t *testing.T) {
	t.Parallel()
	var code []string
	for _, reason := range deadletter.Reasons() {
		code = append(code, string(reason))
	}
	sameNames(t, "dead-letters", code, namedIn(tableRows(t, "dead-letters", "reason")))
	sameNames(t, "redrive", valuesOf(t, "Skip", "deadletter"), namedIn(tableRows(t, "redrive", "left alone")))

	const script = "cmd/weir/internal/httpd/console/web/cause.js"
	causes, _, _ := strings.Cut(weirtest.MustRead(t, filepath.Join(weirtest.Repository, script)), "\n};")
	var explained []string
	for _, m := range regexp.MustCompile(`(?m)^  (\w+): \[`).FindAllStringSubmatch(causes, -1) {
		explained = append(explained, m[1])
	}
	if slices.Sort(code); !slices.Equal(slices.Sorted(slices.Values(explained)), code) {
		t.Errorf("%s explains the reasons %v, and the code has %v", script, explained, code)
	}
}

// TestDocsOfLimitKinds: the topic has a row for each kind of shared limit, says how many there are, and the message for an entry
// of no kind names them all.
func TestDocsOfLimitKinds(t *testing.T) {
	t.Parallel()
	var code []string
	for _, kind := range bucket.Kinds() {
		code = append(code, string(kind))
	}
	sameNames(t, "limits", valuesOf(t, "Kind", "bucket"), code)
	sameNames(t, "limits", code, namedIn(tableRows(t, "limits", "kind")))
	numbers := []string{"none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"}
	if want := "is of one of " + numbers[len(code)] + " kinds;"; !strings.Contains(weirtest.TopicText(t, "limits"), want) {
		t.Errorf("topic limits does not say that an entry of limits %q", want)
	}
	some := object{"url": "http://127.0.0.1", "bucket": object{"rate": "10/s", "capacity": 5}, "limits": []any{object{"name": "bare"}}}
	problems := parsed(t, object{"apis": object{"some": some}})
	for _, kind := range code {
		if !slices.ContainsFunc(problems, func(p problem.Problem) bool { return strings.Contains(p.Fix, kind) }) {
			t.Errorf("the problem of a limit without a kind does not name %s: %q", kind, problems)
		}
	}
}

func TestDocsOfEvents(t *testing.T) {
	t.Parallel()
	data := eventData(t)
	var named []string
	for _, r := range tableRows(t, "events", "type") {
		kind := inBackticks(r.cells[0])[0]
		if named = append(named, kind); data[kind] == nil {
			t.Errorf("topic events names %s, and no comment says which struct is the data of such an event", kind)
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

func TestDocsOfHeaders(t *testing.T) {
	t.Parallel()
	// Headers that weir writes, and that of a message with many jobs.
	byWeir := []string{
		ingest.HeaderAPI, ingest.HeaderKey, ingest.HeaderRedrives, ingest.HeaderOverSoft, ingest.HeaderJobNats, ingest.HeaderError, ingest.HeaderErrorCode,
		client.HeaderBatch,
	}
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
	sameNames(t, "results", append(headersOf(t, "dispatcher/ledger"), ingest.HeaderJobID, ingest.HeaderAPI, ingest.HeaderKey, ingest.HeaderRedrives, deadletter.HeaderOutcome, "Content-Type",
		ingest.HeaderTrace, ingest.HeaderTraceState, ingest.HeaderBaggage),
		namedIn(tableRows(t, "results", "header")))
	ofLetters := append(headersOf(t, "deadletter"), ingest.HeaderJobID, ingest.HeaderAPI, ingest.HeaderKey, ingest.HeaderRedrives)
	ofLetters = slices.DeleteFunc(ofLetters, func(h string) bool { return h == deadletter.HeaderOutcome }) // of notices only
	sameNames(t, "dead-letters", ofLetters, namedIn(tableRows(t, "dead-letters", "header")))
	for _, h := range byWeir {
		if !strings.Contains(weirtest.TopicText(t, "jobs"), "`"+h) {
			t.Errorf("topic jobs does not name %s", h)
		}
	}
}

func TestDocsOfAnswers(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	rows := tableRows(t, "ledger", "field")
	sameNames(t, "ledger", fieldsOfType(t, "Record", "dispatcher/ledger"), namedIn(rows))
	inRow := func(field string) []string {
		i := slices.IndexFunc(rows, func(r row) bool { return r.cells[0] == "`"+field+"`" })
		return inBackticks(rows[max(i, 0)].cells[1])
	}
	sameNames(t, "ledger (answer)", fieldsOfType(t, "Answer", "deadletter"), inRow("answer"))
	outcomes := []string{ledger.Done, "retry", ledger.PushedBack, httpcall.DeniedCall, ledger.Submitted, ledger.Asked, ledger.Reused}
	sameNames(t, "ledger (outcome)", outcomes, inRow("outcome"))
	inquiries := slices.DeleteFunc(valuesOf(t, "Finding", "dispatcher/httpcall"), func(f string) bool {
		return slices.Contains([]httpcall.Finding{httpcall.OperationDone, httpcall.OperationFailed, httpcall.OperationRunning}, httpcall.Finding(f))
	})
	sameNames(t, "ledger (inquiry)", inquiries, inRow("inquiry"))
	sameNames(t, "ledger (billed)", valuesOf(t, "Billed", "deadletter"), inRow("billed"))
	holdups := slices.DeleteFunc(valuesOf(t, "WaitFor", "dispatcher/schedule"), func(w string) bool {
		return schedule.Holdup{For: schedule.WaitFor(w)}.String() == "" || schedule.WaitFor(w) == schedule.WaitRetry
	})
	sameNames(t, "ledger (held_for)", holdups, inRow("held_for"))
	var named []string
	for _, r := range tableRows(t, "ledger", "`held_for`") {
		named = append(named, inBackticks(r.cells[0])...)
	}
	sameNames(t, "ledger (what held a job up)", holdups, named)
}

// metricInSource finds where a metric is created: in its options, in a description, or by a helper that is called with
// its name.
var metricInSource = regexp.MustCompile(`(?s)(?:Name: *|\w+\()"(weir_[a-z_]+)", (?:Help:|")`)

func TestDocsOfMetrics(t *testing.T) {
	t.Parallel()
	var code []string
	for path := range parsedCode(t, shipped...) {
		for _, m := range metricInSource.FindAllStringSubmatch(strings.Join(strings.Fields(weirtest.MustRead(t, path)), " "), -1) {
			code = append(code, m[1])
		}
	}
	if len(code) < 24 {
		t.Errorf("only %d metrics were found in the source", len(code))
	}
	rows := tableRows(t, "metrics", "metric")
	sameNames(t, "metrics", code, namedIn(rows))
	outcomes := []string{ledger.Done, ledger.Reused, lane.Duplicate, lane.Deleted, lane.Lost}
	for _, reason := range deadletter.Reasons() {
		if reason != deadletter.Overflow { // a job that overflows was never queued
			outcomes = append(outcomes, string(reason))
		}
	}
	for metric, values := range map[string][]string{
		"`weir_jobs_finished_total`": outcomes, "`weir_calls_total`": {ledger.Done, "retry", ledger.PushedBack, httpcall.DeniedCall, ledger.Submitted},
	} {
		i := slices.IndexFunc(rows, func(r row) bool { return r.cells[0] == metric })
		sameNames(t, "metrics ("+metric+")", values, inBackticks(rows[max(i, 0)].cell("says")))
	}
}

// TestMetricFamiliesDiffer checks a rule of OpenMetrics: a counter's family is its name without _total, and histograms
// and infos have suffixes of their own, so no two metrics may have the same name without the suffix.
func TestMetricFamiliesDiffer(t *testing.T) {
	t.Parallel()
	suffix := regexp.MustCompile(`_(total|count|sum|bucket|created|info)$`)
	names := map[string]string{}
	for _, metric := range namedIn(tableRows(t, "metrics", "metric")) {
		family := suffix.ReplaceAllString(metric, "")
		if other := names[family]; other != "" {
			t.Errorf("%s and %s are one family in OpenMetrics: %s", other, metric, family)
		}
		names[family] = metric
	}
	if len(names) < 24 {
		t.Errorf("only %d families were found", len(names))
	}
}

// TestDocsOfMetricLabels compares the labels with those of a worker that runs.
func TestDocsOfMetricLabels(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, "apis:\n  m:\n    url: %s\n    bucket: {rate: 1/s, capacity: 1}\n    limits: [{name: daily, quota: 1000/day}, {name: tried, quota: 500/day, shadow: true}]\n")
	r.Producer().Submit("weir.jobs.m.k", nil, nil)
	r.Producer().Submit("weir.jobs.m.k", nil, nil)
	r.AwaitCalls(1)
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

// TestDocsReadmeLeadsToEveryTopic: the README links to every topic.
func TestDocsReadmeLeadsToEveryTopic(t *testing.T) {
	t.Parallel()
	readme := docFiles(t)["README.md"]
	for _, topic := range help.Topics() {
		if !strings.Contains(readme, "["+topic.Name+"](cmd/weir/internal/cli/help/"+topic.Name+".md)") {
			t.Errorf("README does not lead to the topic %s", topic.Name)
		}
	}
}
