package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/weir/weirtest"
)

// TestWaitsHaveAnEnd: no test receives from a channel, or waits for a process or a group, without a timeout of its own.
// It must use the package await, or a select with a time limit. Goroutines and benchmarks are exempt: only what waits
// for them could hang.
func TestWaitsHaveAnEnd(t *testing.T) {
	t.Parallel()
	root := weirtest.Repository
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !waitsInTests(path) || strings.Contains(filepath.Base(path), "bench") {
			return err
		}
		files := token.NewFileSet()
		parsed, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, at := range endlessWaits(parsed) {
			t.Errorf("%s waits without an end: use weir/ingest/await", files.Position(at))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// waitsInTests reports whether a file is of tests.
func waitsInTests(path string) bool {
	ofTheRig := strings.HasSuffix(path, ".go") && strings.Contains(filepath.ToSlash(path), "/weirtest/")
	return ofTheRig || strings.HasSuffix(path, "_test.go")
}

// endlessWaits are the receives of a file outside of a select.
func endlessWaits(file *ast.File) (found []token.Pos) {
	var look func(n ast.Node) bool
	look = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			return false
		case *ast.CallExpr:
			if method, ok := n.Fun.(*ast.SelectorExpr); ok {
				if method.Sel.Name == "Go" || isPackage(method.X, "await") {
					return false
				}
				if len(n.Args) == 0 && method.Sel.Name == "Wait" && !isPackage(method.X, "synctest") {
					found = append(found, n.Pos())
				}
			}
		case *ast.SelectStmt:
			for _, clause := range n.Body.List {
				for _, stmt := range clause.(*ast.CommClause).Body {
					ast.Inspect(stmt, look)
				}
			}
			return false
		case *ast.UnaryExpr:
			if n.Op == token.ARROW && !isTimer(n.X) {
				found = append(found, n.Pos())
			}
		}
		return true
	}
	ast.Inspect(file, look)
	return found
}

// isPackage reports whether a call is one of a package: ingest/await bounds what it waits for, and testing/synctest fails where nothing can
// go on any more.
func isPackage(of ast.Expr, name string) bool {
	is, ok := of.(*ast.Ident)
	return ok && is.Name == name
}

// isTimer reports whether a channel is that of time.After, whose receive ends.
func isTimer(channel ast.Expr) bool {
	call, ok := channel.(*ast.CallExpr)
	if !ok {
		return false
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	return ok && method.Sel.Name == "After"
}
