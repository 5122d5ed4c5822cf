package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"weir/cmd/weir/weirtest"
)

// joinsSubjects are the files that may join tokens to a subject: the type that checks names, and what holds the kinds and markers of a queue.
var joinsSubjects = map[string]bool{"ingest/subject.go": true, "bucket/queue/subject.go": true}

// ofSubject is how a text begins that is a part of one of weir's subjects.
var ofSubject = regexp.MustCompile(`^weir\.(jobs|q|o|dead|events|results|calls|operator)(\.|$)`)

// TestSubjectsAreBuiltInOnePlace: no code of weir joins a text or a name to a subject: ingest.Subjects writes each name as one token. What
// stands beside the product, as a benchmark, the demo and tests do, may.
func TestSubjectsAreBuiltInOnePlace(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"bucket", "deadletter", "dispatcher", "ingest", "cmd/weir/internal"} {
		err := filepath.WalkDir(filepath.Join(weirtest.Repository, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			name, err := filepath.Rel(weirtest.Repository, path)
			if err != nil || joinsSubjects[filepath.ToSlash(name)] || strings.Contains(name, "/demo/") || strings.Contains(name, "/bench/") {
				return err
			}
			files := token.NewFileSet()
			parsed, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, at := range joinedSubjects(parsed) {
				t.Errorf("%s joins a subject: use ingest.Subjects", files.Position(at))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestJoinedSubjectsAreFound: the rule finds what it forbids.
func TestJoinedSubjectsAreFound(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]int{
		`"weir.dead." + api`: 1, `fmt.Sprintf("weir.jobs.%s.%s", api, key)`: 1, `eventSubjects.Of(api) + ".>"`: 1, `string(Subjects) + key`: 1,
		`strings.Join([]string{"weir.dead", api}, ".")`: 1, `Subjects.Below(api)`: 0, `"weir." + kind + ".v1"`: 0, `a + b`: 0,
		`strings.TrimPrefix(s, string(Subjects))`: 0,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package p; var v = "+expr, 0)
		if err != nil {
			t.Fatal(expr, err)
		}
		if found := len(joinedSubjects(file)); found != want {
			t.Errorf("%s: found %d, want %d", expr, found, want)
		}
	}
}

// joinedSubjects returns the places in a file at which a subject is joined from parts.
func joinedSubjects(file *ast.File) (found []token.Pos) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if n.Op == token.ADD && (isOfSubject(n.X) || isOfSubject(n.Y)) {
				found = append(found, n.Pos())
			}
		case *ast.CallExpr:
			call, ok := n.Fun.(*ast.SelectorExpr)
			if !ok || len(n.Args) < 2 {
				return true
			}
			first := n.Args[0]
			if list, ok := first.(*ast.CompositeLit); ok && call.Sel.Name == "Join" && len(list.Elts) > 0 {
				first = list.Elts[0]
			}
			if (call.Sel.Name == "Join" || strings.HasSuffix(call.Sel.Name, "rintf")) && isOfSubject(first) {
				found = append(found, n.Pos())
			}
		}
		return true
	})
	return found
}

// isOfSubject reports whether an expression is a part of a subject: a text that begins like one, or what ingest.Subjects gave.
func isOfSubject(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return err == nil && e.Kind == token.STRING && ofSubject.MatchString(text)
	case *ast.CallExpr:
		switch of := e.Fun.(type) {
		case *ast.Ident: // string(Subjects)
			return of.Name == "string" && len(e.Args) == 1 && isSubjects(e.Args[0])
		case *ast.SelectorExpr:
			return isSubjects(of.X)
		}
	}
	return false
}

// isSubjects reports whether an expression is named as a constant of ingest.Subjects is.
func isSubjects(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return strings.HasSuffix(e.Name, "Subjects") || strings.HasSuffix(e.Name, "SubjectsOf")
	case *ast.SelectorExpr:
		return strings.HasSuffix(e.Sel.Name, "Subjects")
	}
	return false
}
