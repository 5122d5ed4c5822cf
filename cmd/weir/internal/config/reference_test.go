package config

import (
	"os"
	"regexp"
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

// fieldsRead are the names of all fields.
func fieldsRead(t *testing.T) (names []string) {
	t.Helper()
	var add func(s Section)
	add = func(s Section) {
		for _, f := range s.Fields {
			names = append(names, f.Name)
			if f.Inner != nil {
				add(*f.Inner)
			}
		}
	}
	add(File())
	if len(names) < 90 {
		t.Fatalf("only %d fields are in the registry: %v", len(names), names)
	}
	return names
}
