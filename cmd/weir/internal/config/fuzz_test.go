package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/config/field"
	"weir/cmd/weir/internal/config/problem"
)

// FuzzParse checks for any text that Parse does not panic, that every problem has a line of the file, and that an
// accepted file has only values within their bounds and no difference from itself.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, "testdata/contract.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(data, Options{})
		if err == nil {
			checkBounds(t, c)
			return
		}
		var all *problem.Errors
		if !errors.As(err, &all) || len(all.Problems) == 0 || c != nil {
			t.Fatalf("refused with %v and %v", c, err)
		}
		for _, p := range all.Problems {
			if p.Line < 1 || p.Message == "" {
				t.Fatalf("a problem says %+v", p)
			}
		}
	})
}

func checkBounds(t *testing.T, c *Config) {
	t.Helper()
	if changes := c.Diff(c); len(changes) > 0 {
		t.Fatalf("differs from itself: %v", changes)
	}
	for _, a := range c.APIs {
		if err := a.Rules.Validate(); err != nil {
			t.Fatalf("accepted are rules that cannot be kept: %v", err)
		}
		k := a.Rules.Key
		if a.URL == nil || a.URL.Host == "" || len(a.Methods) == 0 || a.Timeout <= 0 || a.MaxBody < 1 || a.Price < 0 ||
			k.Rate.Count < 1 || k.Rate.Per < time.Microsecond || k.Rate.Burst < 1 || k.Capacity < 1 || k.InFlight < 1 {
			t.Fatalf("accepted is %+v", a)
		}
		for _, l := range a.Rules.Shared {
			set := 0
			for _, has := range []bool{l.Rate != nil, l.Quota != nil, l.InFlight > 0, l.Budget != nil} {
				if has {
					set++
				}
			}
			if set != 1 || l.Name == "" {
				t.Fatalf("accepted is the limit %+v", l)
			}
		}
	}
}

// TestHostileFiles checks the bounds on the work and on the number of problems.
func TestHostileFiles(t *testing.T) {
	var fields, keys, aliases strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&fields, "u%d: 1, ", i)
	}
	for i := range 9_000 {
		fmt.Fprintf(&keys, "k%d: {capacity: 1}, ", i)
	}
	for i := range 900 {
		fmt.Fprintf(&aliases, "b%d: *a, ", i)
	}
	const good = "url: 'https://a.example.com', bucket: {rate: 1/s, capacity: 1}"
	for name, c := range map[string]struct{ text, problem string }{
		"large":          {"apis: {}" + strings.Repeat(" ", field.MaxFile), "the file is too large"},
		"deep":           {strings.Repeat("[", 9_000), ""},
		"deeper":         {strings.Repeat("{a: ", 20_000), "exceeded max depth"},
		"fields":         {"apis: {a: {" + fields.String() + "}}", "there are more problems: mend these first"},
		"aliases":        {"apis: {a: &a {" + fields.String() + "}, " + aliases.String() + "}", "there are more problems"},
		"keys":           {"apis: {a: &a {" + good + ", keys: {" + keys.String() + "}}, " + aliases.String() + "}", "too many values"},
		"itself":         {"apis: &a {a: *a}", "apis.a.url: is missing"},
		"list of itself": {"apis: {a: {" + good + ", limits: &l [*l]}}", "limits[0]: is a list"},
	} {
		_, err := Parse([]byte(c.text), Options{})
		var all *problem.Errors
		if !errors.As(err, &all) || len(all.Problems) > field.MostProblems+1 || !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: accepted, or the wrong or too much is told: %.200v", name, err)
		}
	}
}
