package docs

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/cmd/weir/internal/cli/help"
	"weir/cmd/weir/weirtest"
)

var (
	namedPath = regexp.MustCompile("`([\\w.*-]+(?:/[\\w.*-]+)+)`")  // in backticks, with a slash
	loneFile  = regexp.MustCompile("`(\\w+\\.go)`")                 // a file without its room
	linkTo    = regexp.MustCompile(`\]\(([^)#:]+)\)`)               // a link within the repository
	fileInGo  = regexp.MustCompile(`(?:^|[^\w./-])([\w/-]+\.go)\b`) // a file named in a comment
)

// docFiles are the documents for people, by their paths.
func docFiles(t *testing.T) map[string]string {
	t.Helper()
	docs := map[string]string{}
	for _, name := range []string{"README.md", "ARCHITECTURE.md"} {
		docs[name] = weirtest.MustRead(t, filepath.Join(weirtest.Repository, name))
	}
	for path, text := range deployFiles(t) {
		if filepath.Ext(path) == ".md" {
			docs["deploy/"+path] = text
		}
	}
	for _, topic := range help.Topics() {
		docs["cmd/weir/internal/cli/help/"+topic.Name+".md"] = topic.Text()
	}
	return docs
}

// TestDocsNamePathsThatExist: every path in backticks that begins in the repository, and every link into it, exists.
// Paths that a reader must create are in a block without backticks.
func TestDocsNamePathsThatExist(t *testing.T) {
	t.Parallel()
	root := weirtest.Repository
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	exists := func(path string) bool {
		found, err := filepath.Glob(filepath.FromSlash(path))
		return err == nil && len(found) > 0
	}
	for name, text := range docFiles(t) {
		for _, m := range namedPath.FindAllStringSubmatch(text, -1) {
			first, _, _ := strings.Cut(m[1], "/")
			here := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == first && first != "bin" })
			if (here || strings.HasSuffix(m[1], ".go")) && !exists(filepath.Join(root, m[1])) {
				t.Errorf("%s names `%s`, which is not there", name, m[1])
			}
		}
		for _, m := range loneFile.FindAllStringSubmatch(text, -1) {
			if m[1] != "doc.go" {
				t.Errorf("%s names `%s` without its room", name, m[1])
			}
		}
		for _, m := range linkTo.FindAllStringSubmatch(text, -1) {
			if !exists(filepath.Join(root, filepath.Dir(name), m[1])) {
				t.Errorf("%s links to %s, which is not there", name, m[1])
			}
		}
	}
}

// TestDocsInCommentsNameFilesThatExist: a file that a comment names stands beside it, or where its path from the root says; a lone
// name may also be one of a package that the comment names as "bucket's engine.go".
func TestDocsInCommentsNameFilesThatExist(t *testing.T) {
	t.Parallel()
	root := weirtest.Repository
	there := func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "bin" || strings.HasPrefix(d.Name(), ".") && d.Name() != "..") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		for _, group := range parsed.Comments {
			text := group.Text()
			for _, m := range fileInGo.FindAllStringSubmatch(text, -1) {
				if m[1] == "nats.go" {
					continue // the library
				}
				of := strings.Contains(text, "bucket's ") && there(filepath.Join(root, "bucket", m[1]))
				if !of && !there(filepath.Join(filepath.Dir(path), m[1])) && !there(filepath.Join(root, m[1])) {
					t.Errorf("%s: a comment names %s, which is not there", path, m[1])
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
