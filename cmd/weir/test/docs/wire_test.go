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

// TestWireNamesAreChosen: a struct that names a field for JSON names each that JSON would write, or leaves it out with "-". A field
// that is exported for another package would stand in what is stored otherwise.
func TestWireNamesAreChosen(t *testing.T) {
	t.Parallel()
	root := weirtest.Repository
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		ofTests := strings.HasSuffix(path, "_test.go") || strings.Contains(filepath.ToSlash(path), "/weirtest/")
		if err != nil || ofTests || filepath.Ext(path) != ".go" {
			return err
		}
		files := token.NewFileSet()
		parsed, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			s, ok := n.(*ast.StructType)
			if !ok {
				return true
			}
			named, bare := false, []*ast.Ident{}
			for _, f := range s.Fields.List {
				if f.Tag != nil && strings.Contains(f.Tag.Value, `json:"`) {
					named = true
					continue
				}
				for _, name := range f.Names {
					if name.IsExported() {
						bare = append(bare, name)
					}
				}
			}
			if named {
				for _, name := range bare {
					t.Errorf("%s: field %s has no JSON name beside fields that have one", files.Position(name.Pos()), name.Name)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
