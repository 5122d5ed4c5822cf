package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/cmd/weir/internal/config/problem"
)

// TestGoldenFiles checks what Parse makes of every file in testdata/good and testdata/bad. The .want file beside it has
// all values and warnings of a good file, and all problems of a bad one. UPDATE_GOLDEN=1 writes these files.
func TestGoldenFiles(t *testing.T) {
	for _, kind := range []string{"good", "bad"} {
		files, err := filepath.Glob("testdata/" + kind + "/*.yaml")
		if err != nil || len(files) == 0 {
			t.Fatalf("no %s files: %v", kind, err)
		}
		for _, file := range files {
			t.Run(kind+"/"+filepath.Base(file), func(t *testing.T) { checkGolden(t, file, kind == "good") })
		}
	}
}

func checkGolden(t *testing.T, file string, good bool) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse(data, Options{Name: filepath.Base(file)})
	if good != (err == nil) {
		t.Fatalf("accepted: %v, want %v\n%v", err == nil, good, err)
	}
	got := ""
	if good {
		got = describeAll(c, filepath.Base(file))
	} else {
		got = err.Error() + "\n"
	}
	golden := strings.TrimSuffix(file, ".yaml") + ".want"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	expected := strings.Split(string(want), "\n")
	lines := strings.Split(got, "\n")
	for _, line := range lines {
		if !slices.Contains(expected, line) {
			t.Errorf("unexpected: %s", line)
		}
	}
	for _, line := range expected {
		if !slices.Contains(lines, line) {
			t.Errorf("missing: %s", line)
		}
	}
	if !t.Failed() && got != string(want) {
		t.Errorf("the order differs, got\n%s", got)
	}
}

// describeAll returns all values by path, and then the warnings.
func describeAll(c *Config, file string) string {
	var b strings.Builder
	d := c.describe()
	for _, path := range slices.Sorted(maps.Keys(d)) {
		fmt.Fprintf(&b, "%s: %s\n", path, d[path].Text)
	}
	for _, w := range c.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w.In(file))
	}
	return b.String()
}

// TestTenMistakesAreToldAtOnce checks that a user can mend all mistakes of a file at once.
func TestTenMistakesAreToldAtOnce(t *testing.T) {
	data, err := os.ReadFile("testdata/bad/ten-mistakes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Parse(data, Options{})
	var all *problem.Errors
	if !errors.As(err, &all) || len(all.Problems) != 10 {
		t.Fatalf("want ten problems, got\n%v", err)
	}
	for i, line := range strings.Split(string(data), "\n") {
		marked := strings.Contains(line, "# wrong")
		told := slices.ContainsFunc(all.Problems, func(p problem.Problem) bool { return p.Line == i+1 })
		if marked != told {
			t.Errorf("line %d is marked wrong: %v, told: %v: %s", i+1, marked, told, line)
		}
	}
}
