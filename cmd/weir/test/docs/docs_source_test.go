package docs

import (
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weir/cmd/weir/weirtest"
)

// parsedCode is every file of weir's own code below these directories, without tests and without what is not shipped.
func parsedCode(t *testing.T, dirs ...string) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join(weirtest.Repository, dir), func(path string, d fs.DirEntry, err error) error {
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
					// A directory may have another constant under the same name.
					if i < len(spec.Values) && choose(name.Name, kind) && found[name.Name] == "" {
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

// valuesOf are the values of all constants of a type.
func valuesOf(t *testing.T, kind string, dirs ...string) []string {
	t.Helper()
	return slices.Collect(maps.Values(constants(t, func(_, of string) bool { return of == kind }, dirs...)))
}

// eventData are the fields of what events tell, by their types: the struct's comment says of which.
func eventData(t *testing.T) map[string][]string {
	t.Helper()
	says := regexp.MustCompile(`is the data of (?:an? )?(\w+)(?: and (\w+))? events?\b`)
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
