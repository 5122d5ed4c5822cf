package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// tortured is a run of weir torture.
type tortured struct {
	report torture.Report // there whether or not the promises were kept
	talk   bytes.Buffer
	err    error
	done   chan struct{}
}

// startTorture runs weir torture as soon as there is a place for it. A run mostly waits, so that several fit one core.
func startTorture(t *testing.T, bin string, places chan struct{}, args string) *tortured {
	dir := filepath.Join(t.TempDir(), "run")
	if !strings.Contains(args, "--seed") {
		args += " --seed 5"
	}
	cmd := exec.CommandContext(t.Context(), bin, append([]string{"torture", "--json", "--dir", dir}, strings.Fields(args)...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it ends what it started
	r := &tortured{done: make(chan struct{})}
	cmd.Stderr = &r.talk
	go func() {
		defer close(r.done)
		places <- struct{}{}
		defer func() { <-places }()
		out, err := cmd.Output()
		if r.err = json.Unmarshal(out, &r.report); r.err != nil {
			r.err = errors.Join(err, fmt.Errorf("no figures: %q: %w", out, r.err))
		} else if r.report.Kept() != (err == nil) {
			r.err = fmt.Errorf("promises kept: %v, and it ended with %w", r.report.Kept(), err)
		}
	}()
	t.Cleanup(func() { <-r.done })
	return r
}

// verdict waits for the end of a run and returns what it found.
func (r *tortured) verdict(t *testing.T) *torture.Report {
	t.Helper()
	<-r.done
	if r.err != nil {
		t.Fatalf("%v\n%s", r.err, r.talk.String())
	}
	var table bytes.Buffer
	if err := r.report.Print(&table); err != nil {
		t.Error(err)
	}
	t.Logf("\n%s", table.String())
	return &r.report
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

// mustBreak checks that one of these promises was broken, in this run or in one of a few more with other seeds.
func (r *tortured) mustBreak(t *testing.T, again func(seed int) *tortured, promises ...string) {
	t.Helper()
	const firstSeed, lastSeed = 6, 10
	for seed := firstSeed; ; seed++ {
		names := broken(r.verdict(t))
		if slices.ContainsFunc(names, func(name string) bool { return slices.Contains(promises, name) }) {
			return
		}
		if seed < lastSeed {
			r = again(seed)
		}
		if r == nil || seed == lastSeed {
			t.Errorf("broken: %v, and not %q: the bug was not caught", names, promises)
			return
		}
	}
}

// TestTorture is the short torture: all kinds of faults, on apis of both kinds, keep every promise; and each planted bug
// is caught by the faults that weir itself survives.
func TestTorture(t *testing.T) {
	t.Parallel()
	bin := buildWeir(t, "-tags", "torture")
	places := make(chan struct{}, 4)
	kept := map[string]*tortured{}
	for name, args := range map[string]string{
		"external server": "--worker-kills 2 --server-kills 3 --stops 1 --cuts 4 --takeovers 1 --disk-fulls 1",
		"embedded server": "--server embedded --worker-kills 10 --stops 0 --cuts 2",
		"idempotent":      "--idempotent --server embedded --worker-kills 8 --stops 0 --cuts 4",
		"the planted bugs' points": "--server embedded --worker-kills 5 --stops 0 --cuts 0 --at call-answered --at call-sent --at job-stored " +
			"--at refusal-next --at record-stored",
	} {
		kept[name] = startTorture(t, bin, places, args)
	}
	caught := map[fault.Bug]*tortured{}
	breaks, plans := map[fault.Bug]string{}, map[fault.Bug]string{}
	for bug, planted := range map[fault.Bug]struct{ args, breaks string }{
		fault.DeleteFirst: {"--server embedded --worker-kills 2 --at call-answered", "lost"},
		fault.NoIntent:    {"--server embedded --worker-kills 3 --at call-sent", "called twice"},
		fault.NoDedupe:    {"--server embedded --worker-kills 2 --at job-stored", "called twice"},
		fault.AnswerFirst: {"--server embedded --worker-kills 2 --at refusal-next", "refused"},
		fault.LimiterOpen: {"--server embedded --worker-kills 5 --at record-stored", "over-rate"},
		fault.NoFence:     {"--worker-kills 0 --server-kills 0 --takeovers 1", "called twice"},
	} {
		plans[bug] = planted.args + " --stops 0 --cuts 0 --planted " + string(bug)
		caught[bug], breaks[bug] = startTorture(t, bin, places, plans[bug]), planted.breaks
	}
	for name, run := range kept {
		t.Run(name, func(t *testing.T) {
			r := run.verdict(t)
			if names := broken(r); len(names) > 0 {
				t.Errorf("broken: %v", names)
			}
			if r.Accepted == 0 || r.Called == 0 || r.WorkerKills < 2 || r.AtPoints+r.Missed == 0 {
				t.Errorf("%d accepted, %d called, %d kills, %d of them at points: that proves nothing", r.Accepted, r.Called, r.WorkerKills, r.AtPoints)
			}
		})
	}
	for bug, run := range caught {
		t.Run("planted "+string(bug), func(t *testing.T) {
			run.mustBreak(t, func(seed int) *tortured {
				if bug != fault.NoFence { // a second owner calls what the first was about to call, or not: that is chance
					return nil
				}
				return startTorture(t, bin, places, fmt.Sprintf("%s --seed %d", plans[bug], seed))
			}, breaks[bug])
		})
	}
}

// fleetFaults is a command line with these faults and no others.
func fleetFaults(faults map[string]int) string {
	o := torture.Options{}
	line := "--replicas 2"
	for _, c := range o.Counts() {
		line += fmt.Sprintf(" --%s %d", c.Option, faults[c.Option])
	}
	return line
}

// TestFleetTorture is the short torture of replicas: a kill and a cut of each kind, and owners that go on after their lease
// must be caught.
func TestFleetTorture(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed: apt-get install redis-server")
	}
	bin := buildWeir(t, "-tags", "torture")
	places := make(chan struct{}, 4)
	kept := map[string]map[string]int{
		"kill, NATS": {"worker-kills": 1, "cut-nats": 1},
		"Redis, api": {"cut-redis": 1, "cut-api": 1},
		"node":       {"cut-node": 1},
	}
	runs := map[string]*tortured{}
	for name, faults := range kept {
		runs[name] = startTorture(t, bin, places, fleetFaults(faults))
	}
	planted := fleetFaults(map[string]int{"stops": 1}) + " --planted " + string(fault.NoFence)
	bug := startTorture(t, bin, places, planted)
	for name, faults := range kept {
		t.Run(name, func(t *testing.T) {
			r := runs[name].verdict(t)
			if names := broken(r); len(names) > 0 {
				t.Errorf("broken: %v", names)
			}
			if r.Accepted == 0 || r.Called == 0 || len(r.Aftermath) != len(faults) {
				t.Errorf("%d accepted, %d called, faults %+v: that proves nothing", r.Accepted, r.Called, r.Aftermath)
			}
		})
	}
	t.Run("planted "+string(fault.NoFence), func(t *testing.T) {
		bug.mustBreak(t, func(seed int) *tortured { // two owners at once; what each of them was about to call is chance
			return startTorture(t, bin, places, fmt.Sprintf("%s --seed %d", planted, seed))
		}, "called twice", "out of order")
	})
}

// TestOrdinaryBuildHasNoFaults: nothing in the environment can end an ordinary weir at a point, or plant a bug in it: not
// even the names are in it.
func TestOrdinaryBuildHasNoFaults(t *testing.T) {
	t.Parallel()
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
	if out, err := exec.Command(ordinary, "torture", "--cut-nats", "1").CombinedOutput(); err == nil || !bytes.Contains(out, []byte("--replicas 2 or more")) {
		t.Errorf("a cut from NATS without replicas: %v\n%s", err, out)
	}
	for _, args := range [][]string{{"--planted", string(fault.NoFence)}, {"--at", string(fault.CallSent)}} {
		out, err := exec.Command(ordinary, append([]string{"torture"}, args...)...).CombinedOutput()
		var failed *exec.ExitError
		if !errors.As(err, &failed) || failed.ExitCode() != exitUsage || !bytes.Contains(out, []byte("-tags torture")) {
			t.Errorf("torture %v of an ordinary build: %v\n%s", args, err, out)
		}
	}
}
