package docs

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// fixAt is where a call has its fix: the first argument, or the last.
var fixAt = map[string]func([]ast.Expr) ast.Expr{
	"watch": first, "bad": first, "Refuse": first, "problem": last,
	"fail": last, "Fail": last, "warn": last, "Warn": last, "Note": last,
}

func first(all []ast.Expr) ast.Expr { return all[0] }
func last(all []ast.Expr) ast.Expr  { return all[len(all)-1] }

// fixesIn returns the expressions of the fixes in a file: of calls, of fields and of variables that are named so.
func fixesIn(f *ast.File) (found []ast.Expr) {
	named := func(e ast.Expr, value ast.Expr) {
		if id, ok := e.(*ast.Ident); ok && (strings.HasSuffix(strings.ToLower(id.Name), "fix") || id.Name == "Needs") {
			found = append(found, value)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			called := ""
			switch f := n.Fun.(type) {
			case *ast.SelectorExpr:
				called = f.Sel.Name
			case *ast.Ident:
				called = f.Name
			}
			if at := fixAt[called]; at != nil && len(n.Args) > 1 {
				found = append(found, at(n.Args))
			}
		case *ast.KeyValueExpr:
			named(n.Key, n.Value)
		case *ast.AssignStmt:
			for i := range n.Rhs {
				named(n.Lhs[i], n.Rhs[i])
			}
		case *ast.ValueSpec:
			for i := range n.Values {
				named(n.Names[i], n.Values[i])
			}
		case *ast.FuncDecl:
			if strings.HasSuffix(strings.ToLower(n.Name.Name), "fix") {
				ast.Inspect(n.Body, func(n ast.Node) bool {
					if r, ok := n.(*ast.ReturnStmt); ok {
						found = append(found, r.Results...)
					}
					return true
				})
			}
		}
		return true
	})
	return found
}

// textOf returns an expression's text, in which NAME stands for what is put in.
func textOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return regexp.MustCompile(`%[a-z]`).ReplaceAllString(text, "NAME")
		}
	case *ast.BinaryExpr:
		return textOf(e.X) + textOf(e.Y)
	case *ast.CallExpr:
		if f, ok := e.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Sprintf" {
			return textOf(e.Args[0])
		}
	}
	return "NAME"
}

// How a fix names a field: by its path, with its value, by a name that is no English word, or as what to change.
var fieldNames = []*regexp.Regexp{
	regexp.MustCompile(`\b([a-z_]+(?:\.(?:[a-z_]+|NAME))+)`),
	regexp.MustCompile(`(?:[{,]|\b(?:write|set|or|and|add|remove)) ?([a-z_]+): `),
	regexp.MustCompile(`\b([a-z]+_[a-z_]+)\b`),
	regexp.MustCompile(`\b(?:raise|lower|shorter|longer) (?:(?:the|an?|api's) )*([a-z_]+|NAME)\b`),
}

// noField has what a fix may say to change that is no field, by its own name.
var noField = []string{"it", "them", "one", "this", "limit", "period", "duration", "fields", "answer", "nats", "redis", "NAME"}

// noText are parts of a fix that name no field: commands, references, and examples of addresses and paths.
var noText = regexp.MustCompile("`[^`]*`|\\$\\{[^}]*\\}|\\S*example\\.com\\S*|/\\S+")

// TestFixesNameFields checks that each field named by the fix of a problem, a warning or a note is in the
// configuration.
func TestFixesNameFields(t *testing.T) {
	t.Parallel()
	paths := configurationPaths()
	values := strings.Builder{}
	for _, table := range fieldTables() {
		values.WriteString(table.text)
	}
	known := func(name string) bool {
		end := strings.Split(name, ".")
		if slices.Contains(noField, name) || strings.Contains(values.String(), "`"+name+"`") { // or a word that a field may have
			return true
		}
		return slices.ContainsFunc(paths, func(path string) bool {
			all := strings.Split(path, ".")
			return len(all) >= len(end) && slices.EqualFunc(all[len(all)-len(end):], end, func(of, named string) bool {
				return of == named || of == strings.ToUpper(of) || named == "NAME"
			})
		})
	}
	looked := 0
	for name, file := range parsedCode(t, "cmd/weir/internal/config", "cmd/weir/internal/ops/status", "cmd/weir/internal/ops/doctor") {
		for _, fix := range fixesIn(file) {
			text := noText.ReplaceAllString(textOf(fix), "")
			for _, form := range fieldNames {
				for _, m := range form.FindAllStringSubmatch(text, -1) {
					if looked++; !known(m[1]) {
						t.Errorf("%s: a fix names %q, which is no field: %s", name, m[1], text)
					}
				}
			}
		}
	}
	if looked < 100 {
		t.Errorf("only %d names were found in fixes", looked)
	}
}
