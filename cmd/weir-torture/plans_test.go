package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/bucket"
	"weir/cmd/weir-torture/internal/judge"
)

// TestSettle checks that a plan's directory stays, with the report, if a promise was broken, and else goes. The directory
// of a plan that failed stays as it is.
func TestSettle(t *testing.T) {
	broken := &judge.Report{Findings: []judge.Finding{{Outcome: bucket.Fail, Name: "lost"}}}
	for _, c := range []struct {
		report *judge.Report
		left   []string // nil: the directory is gone
	}{
		{&judge.Report{}, nil},
		{broken, []string{"weir.log", reportFile}},
		{nil, []string{"weir.log"}},
	} {
		dir := filepath.Join(t.TempDir(), "seed-1")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "weir.log"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if err := settle(dir, c.report); err != nil {
			t.Error(err)
		}
		left, err := os.ReadDir(dir)
		if (c.left == nil) != errors.Is(err, os.ErrNotExist) || len(left) != len(c.left) {
			t.Errorf("left are %v, %v, want %q", left, err, c.left)
		}
		for _, name := range c.left {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestPrintRow checks the line of a plan with a report, and of one that failed.
func TestPrintRow(t *testing.T) {
	var out strings.Builder
	g := &flags{}
	if err := errors.Join(g.printRow(&out, &judge.Report{Seed: 3}, 3, nil), g.printRow(&out, nil, 4, errors.New("no server\nlog"))); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "| 3 |") || lines[1] != "| 4 | | | | | | | | | | failed: no server |" {
		t.Errorf("the lines are %q", lines)
	}
	for _, line := range lines {
		if got, want := strings.Count(line, "|"), strings.Count(strings.Split(judge.TableHead, "\n")[0], "|"); got != want {
			t.Errorf("%q has %d bars, the head %d", line, got, want)
		}
	}
}
