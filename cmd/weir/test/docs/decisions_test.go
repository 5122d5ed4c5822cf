package docs

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"weir/cmd/weir/weirtest"
)

// TestSoakIsListed checks that the decision about tests lists each test of the soak, and no other.
func TestSoakIsListed(t *testing.T) {
	decision, err := os.ReadFile(filepath.Join(weirtest.Repository, "deploy/decisions/050-testing.md"))
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := bytes.Cut(decision, []byte("## Planted bugs"))
	var listed []string
	for _, m := range regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllSubmatch(before, -1) {
		listed = append(listed, string(m[1]))
	}
	files, err := filepath.Glob(filepath.Join(weirtest.Repository, "cmd/weir/test/soak/*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files of the soak: %v", len(files), err)
	}
	var tests []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(t \*testing\.T\)`).FindAllSubmatch(text, -1) {
			tests = append(tests, string(m[1]))
		}
	}
	for _, name := range tests {
		if !slices.Contains(listed, name) {
			t.Errorf("the decision does not list %s", name)
		}
	}
	for _, name := range listed {
		if !slices.Contains(tests, name) {
			t.Errorf("the decision lists %s, which the soak does not have", name)
		}
	}
}

// TestPlantedBugsHaveTheirTests checks that the tests exist that the same decision lists beside planted bugs.
func TestPlantedBugsHaveTheirTests(t *testing.T) {
	decision, err := os.ReadFile(filepath.Join(weirtest.Repository, "deploy/decisions/050-testing.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("\\| `([a-z/]+)` \\| `(Test[A-Za-z0-9]+)`(?: of `([a-z/]+)`)? \\|").FindAllSubmatch(decision, -1)
	if len(named) == 0 {
		t.Error("the decision lists no planted bug")
	}
	for _, m := range named {
		where := cmp.Or(string(m[3]), string(m[1]))
		files, err := filepath.Glob(filepath.Join(weirtest.Repository, where, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		stands := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			stands = stands || bytes.Contains(text, []byte("func "+string(m[2])+"("))
		}
		if !stands {
			t.Errorf("%s has no test %s", where, m[2])
		}
	}
}
