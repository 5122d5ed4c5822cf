package restoreguard

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}

func requireFound(t *testing.T, dir string, want bool) {
	t.Helper()
	found, untold, err := ExamineDirectory(dir)
	if err != nil || untold != "" {
		t.Fatal(err, untold)
	}
	if (found != nil) != want {
		t.Fatalf("%s: found %+v", dir, found)
	}
}

func marked(t *testing.T) (dir, parent string) {
	t.Helper()
	parent = t.TempDir()
	dir = filepath.Join(parent, "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	requireFound(t, dir, false) // the directory is new
	if err := MarkDirectory(dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	requireFound(t, dir, false)
	return dir, parent
}

// TestCopiesOfADirectoryAreFound checks that a copy of a data directory is recognised, whatever program made it, even
// if it is put back over the directory after another start. The directory under another name still counts as itself.
func TestCopiesOfADirectoryAreFound(t *testing.T) {
	for _, c := range []struct{ what, script string }{
		{"cp -a", `cp -a "$1" "$2"`},
		{"tar", `mkdir "$2" && tar -C "$1" -c . | tar -C "$2" -x`},
		{"cp over it", `mkdir "$2" && cp -a "$1/." "$2"`},
	} {
		t.Run(c.what, func(t *testing.T) {
			dir, parent := marked(t)
			backup, back := filepath.Join(parent, "backup"), filepath.Join(parent, "back")
			run(t, "sh", "-ec", c.script, "sh", dir, backup)
			requireFound(t, dir, false)
			requireFound(t, backup, true)
			run(t, "sh", "-ec", c.script, "sh", backup, back)
			requireFound(t, back, true)
			for range 3 { // starts
				if err := MarkDirectory(dir, time.Now()); err != nil {
					t.Fatal(err)
				}
			}
			run(t, "sh", "-ec", `cp -a "$1/." "$2"`, "sh", backup, dir)
			requireFound(t, dir, true)
		})
	}
	dir, parent := marked(t)
	moved := filepath.Join(parent, "moved")
	run(t, "mv", dir, moved)
	requireFound(t, moved, false)
	if err := os.WriteFile(filepath.Join(moved, identityFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	requireFound(t, moved, true)
}

// TestStreamsThatAreBehind checks that a stream is behind if it ends before its noted end. A stream that was deleted
// and made anew, or that has only grown, is not behind.
func TestStreamsThatAreBehind(t *testing.T) {
	noted := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	born := noted.Add(-time.Hour)
	for _, c := range []struct {
		what            string
		is              map[string]Mark
		behind, renewed int
	}{
		{"as noted", map[string]Mark{"A": {Last: 10, Born: born}}, 0, 0},
		{"it went on", map[string]Mark{"A": {Last: 11, Born: born}, "B": {Last: 5, Born: noted}}, 0, 0},
		{"it is behind", map[string]Mark{"A": {Last: 9, Born: born}}, 1, 0},
		{"it is gone", nil, 0, 1},
		{"it was made anew", map[string]Mark{"A": {Last: 3, Born: noted.Add(time.Minute)}}, 0, 1},
		{"it was made anew and has more", map[string]Mark{"A": {Last: 30, Born: noted.Add(time.Minute)}}, 0, 1},
		{"it is another of before", map[string]Mark{"A": {Last: 30, Born: born.Add(-time.Minute)}}, 1, 0},
	} {
		back, renewed := behind(map[string]Mark{"A": {Last: 10, Born: born}}, c.is, noted)
		if len(back) != c.behind || len(renewed) != c.renewed {
			t.Errorf("%s: behind %v, renewed %v", c.what, back, renewed)
		}
	}
}

// TestSettledSuspicions checks that an order settles suspicions about this store that were seen before the order, and
// no others.
func TestSettledSuspicions(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		what  string
		s     Suspicion
		order *Order
		want  bool
	}{
		{"no order", Suspicion{Seen: at}, nil, false},
		{"an order since", Suspicion{Seen: at}, &Order{At: at.Add(time.Second)}, true},
		{"an order before", Suspicion{Seen: at}, &Order{At: at.Add(-time.Second)}, false},
		{"another store", Suspicion{Seen: at, Strange: true}, &Order{At: at.Add(time.Second)}, false},
		{"at an unknown time", Suspicion{}, &Order{At: at}, false},
	} {
		if c.s.Settled(c.order) != c.want {
			t.Errorf("%s: settled is %v", c.what, !c.want)
		}
	}
}
