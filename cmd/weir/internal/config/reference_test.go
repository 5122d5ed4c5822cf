package config

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestReference checks that the file that documents every field is complete, and that the defaults in it are true. The
// example of the contract leaves the defaults out, and must mean the same. UPDATE_GOLDEN=1 appends the fields that the
// file lacks.
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
	shown, _, _ := strings.Cut(string(text), further)
	rest := ""
	for _, path := range fieldPaths(File()) {
		name := path[strings.LastIndex(path, ".")+1:]
		if !regexp.MustCompile(`(?m)(^|[ {])` + name + `:`).MatchString(shown) {
			rest += "# " + path + "\n"
		}
	}
	want := shown
	if rest != "" {
		want += further + rest
	}
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Errorf("%s does not end with the fields that it does not show: make fields writes them\n%s", file, want[len(shown):])
	}
}

// further begins the list of fields that the file does not show where they belong.
const further = "\n# Further fields, which weir help fields explains:\n"

// fieldPaths returns the paths of all fields.
func fieldPaths(s Section) (paths []string) {
	for _, f := range s.Fields {
		paths = append(paths, strings.Trim(s.Path+"."+f.Name, "."))
		if f.Inner != nil {
			paths = append(paths, fieldPaths(*f.Inner)...)
		}
	}
	return paths
}
