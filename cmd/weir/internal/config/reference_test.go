package config

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReference keeps the file that documents every field complete, and its defaults the true ones: it means the same as
// the example of the contract, in which they are left out.
func TestReference(t *testing.T) {
	const file = "../../../../deploy/weir.reference.yaml"
	contract, reference := parseFile(t, "testdata/contract.yaml"), parseFile(t, file)
	for _, change := range contract.Diff(reference) {
		t.Error(change)
	}
	for _, w := range reference.Warnings {
		t.Error(w)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range fieldsRead(t) {
		if !regexp.MustCompile(`(?m)(^|[ {])` + field + `:`).Match(text) {
			t.Errorf("%s does not show the field %s", file, field)
		}
	}
}

// fieldsRead are the names that this package reads from a file, by its own source.
func fieldsRead(t *testing.T) []string {
	t.Helper()
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	list, name := regexp.MustCompile(`\.fields\(([^)]*)\)`), regexp.MustCompile(`"([a-z_]+)"`)
	var names []string
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range list.FindAllStringSubmatch(string(text), -1) {
			for _, n := range name.FindAllStringSubmatch(call[1], -1) {
				names = append(names, n[1])
			}
		}
	}
	if len(names) < 40 {
		t.Fatalf("only %d names of fields were found in the source: %v", len(names), names)
	}
	return names
}
