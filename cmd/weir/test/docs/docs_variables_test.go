package docs

import (
	"errors"
	"go/ast"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/config/problem"
	"weir/cmd/weir/weirtest/program"
)

// TestDocsOfVariables: the topic's tables are those of the registry; and weir reads the default, the range and the words that the
// registry has of each. It is not parallel, because it reads the settings from the process's variables and directory.
func TestDocsOfVariables(t *testing.T) {
	var tables []table
	for _, of := range environment.Tables() {
		tables = append(tables, tableOf("## "+of.Path, "variable", of.Fields))
	}
	holdToTables(t, "environment", tables)
	plainEnvironment(t)
	t.Chdir(t.TempDir()) // there is no weir.yaml
	s, err := environment.Read()
	if err != nil {
		t.Fatal(err)
	}
	defaults := map[string]string{}
	for _, v := range s.Redacted() {
		defaults[v.Name] = v.Value
	}
	for _, r := range tableRows(t, "environment", "variable") {
		name := inBackticks(r.cells[0])[0]
		if r.cell("read by") != "" {
			continue
		}
		if quoted := inBackticks(r.cell("default")); len(quoted) == 1 && r.cell("default") == "`"+quoted[0]+"`" && !sameList(quoted[0], defaults[name]) {
			t.Errorf("topic environment: the default of %s is %q, not %q", name, defaults[name], quoted[0])
		} else if r.cell("default") == "empty" && defaults[name] != "" {
			t.Errorf("topic environment: the default of %s is %q", name, defaults[name])
		}
		for _, fix := range fixes(func(value string) []problem.Problem {
			t.Setenv(name, value)
			defer os.Unsetenv(name)
			_, err := environment.Read()
			return problemsIn(err)
		}, name) {
			holdToFix(t, "environment", name, r.cell("values"), fix)
		}
	}
}

func TestDocsOfVariablesOfOthers(t *testing.T) {
	t.Parallel()
	var code, named []string
	for _, f := range parsedCode(t, shipped...) {
		ast.Inspect(f, func(n ast.Node) bool {
			if of, ok := n.(*ast.SelectorExpr); ok && of.Sel.Name == "ProxyFromEnvironment" {
				code = append(code, "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
			}
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
	for _, pair := range program.Environ() {
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

// fixes returns the fixes that are offered for the given paths when set gets impossible values. If the lower end of an
// offered range is refused as well, the fix that is offered then replaces it.
func fixes(set func(value string) []problem.Problem, paths ...string) []string {
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

func problemsIn(err error) []problem.Problem {
	var wrong *problem.Errors
	if errors.As(err, &wrong) {
		return wrong.Problems
	}
	return nil
}

var (
	rangeInFix = regexp.MustCompile(`(\d[\w%]*) to (\d[\w%]*)(?:$|,)`)
	wordsInFix = regexp.MustCompile(`^it can (?:only )?be (.*)$`)
)

// holdToFix compares what a topic says of a value with what its parser says: the same range, the same words.
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
