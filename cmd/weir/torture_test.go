package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weir/bucket"
	"weir/bucket/fault"
	"weir/cmd/weir/internal/torture"
)

// buildWeir builds weir as a user does, or with the tag torture.
func buildWeir(t *testing.T, flags ...string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "weir")
	args := append(append([]string{"build"}, flags...), "-o", bin, ".")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return bin
}

// tortureRun runs weir torture and reads its figures. They are there whether or not the promises were kept.
func tortureRun(t *testing.T, bin string, args ...string) *torture.Report {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	cmd := exec.CommandContext(t.Context(), bin, append([]string{"torture", "--json", "--seed", "5", "--dir", dir}, args...)...)
	var talk bytes.Buffer
	cmd.Stderr = &talk
	out, err := cmd.Output()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	r := &torture.Report{}
	if err := json.Unmarshal(out, r); err != nil {
		t.Fatalf("no figures (%v): %q\n%s", err, out, talk.String())
	}
	if r.Kept() != (err == nil) {
		t.Errorf("promises kept: %v, and it ended with %v", r.Kept(), err)
	}
	var table bytes.Buffer
	if err := r.Print(&table); err != nil {
		t.Error(err)
	}
	t.Logf("\n%s", table.String())
	return r
}

// broken are the names of the promises that a run saw broken.
func broken(r *torture.Report) []string {
	var names []string
	for _, f := range r.Findings {
		if f.Outcome == bucket.Fail {
			names = append(names, f.Name)
		}
	}
	return names
}

// TestTorture is the short torture: all kinds of faults, on apis of both kinds, keep every promise; and each planted bug
// is caught by the faults that weir itself survives.
func TestTorture(t *testing.T) {
	bin := buildWeir(t, "-tags", "torture")
	for _, run := range []struct {
		name, args string
		kills      int
	}{
		{"external server", "--worker-kills 3 --server-kills 3 --stops 1 --cuts 4 --takeovers 1 --disk-fulls 1", 3},
		{"idempotent, external server", "--idempotent --worker-kills 2 --server-kills 2 --stops 0 --cuts 4 --takeovers 0", 2},
		{"embedded server", "--server embedded --worker-kills 12 --stops 0 --cuts 2", 12},
		{
			"the planted bugs' points", "--server embedded --worker-kills 5 --stops 0 --cuts 0 --at call-answered --at call-sent --at job-stored " +
				"--at refusal-next --at record-stored", 5,
		},
	} {
		t.Run(run.name, func(t *testing.T) {
			t.Parallel()
			r := tortureRun(t, bin, strings.Fields(run.args)...)
			if names := broken(r); len(names) > 0 {
				t.Errorf("broken: %v", names)
			}
			if r.Accepted == 0 || r.Called == 0 || r.WorkerKills < run.kills || r.AtPoints == 0 {
				t.Errorf("%d accepted, %d called, %d kills, %d of them at points: that proves nothing", r.Accepted, r.Called, r.WorkerKills, r.AtPoints)
			}
		})
	}
	for bug, planted := range map[fault.Bug]struct{ args, breaks string }{
		fault.DeleteFirst: {"--server embedded --worker-kills 2 --at call-answered", "lost"},
		fault.NoIntent:    {"--server embedded --worker-kills 3 --at call-sent", "called twice"},
		fault.NoDedupe:    {"--server embedded --worker-kills 2 --at job-stored", "called twice"},
		fault.AnswerFirst: {"--server embedded --worker-kills 2 --at refusal-next", "refused"},
		fault.LimiterOpen: {"--server embedded --worker-kills 5 --at record-stored", "over-rate"},
		fault.NoFence:     {"--worker-kills 0 --server-kills 0 --takeovers 1", "called twice"},
	} {
		t.Run("planted "+string(bug), func(t *testing.T) {
			t.Parallel()
			args := append(strings.Fields(planted.args), "--stops", "0", "--cuts", "0", "--planted", string(bug))
			if names := broken(tortureRun(t, bin, args...)); !strings.Contains(strings.Join(names, ","), planted.breaks) {
				t.Errorf("broken: %v, and not %q: the bug was not caught", names, planted.breaks)
			}
		})
	}
}

// TestOrdinaryBuildHasNoFaults: nothing in the environment can end an ordinary weir at a point, or plant a bug in it: not
// even the names are in it.
func TestOrdinaryBuildHasNoFaults(t *testing.T) {
	ordinary := buildWeir(t)
	names := []string{"TORTURE_CRASH", "TORTURE_PLANTED", string(fault.DeleteFirst), string(fault.AnswerFirst), string(fault.EpochDropped)}
	for tag, bin := range map[string]string{"": ordinary, "torture": buildWeir(t, "-tags", "torture")} {
		program, err := os.ReadFile(bin)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if got, want := bytes.Contains(program, []byte(name)), tag != ""; got != want {
				t.Errorf("build with tags %q has the name %s: %v", tag, name, got)
			}
		}
	}
	for _, args := range [][]string{{"--planted", string(fault.NoFence)}, {"--at", string(fault.CallSent)}} {
		out, err := exec.Command(ordinary, append([]string{"torture"}, args...)...).CombinedOutput()
		var failed *exec.ExitError
		if !errors.As(err, &failed) || failed.ExitCode() != exitUsage || !bytes.Contains(out, []byte("-tags torture")) {
			t.Errorf("torture %v of an ordinary build: %v\n%s", args, err, out)
		}
	}
}
