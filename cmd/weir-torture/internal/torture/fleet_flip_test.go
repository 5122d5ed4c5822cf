package torture

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"weir/cmd/weir-torture/internal/plan"
)

// TestFlipPart checks that each part of a node's store has files of its own, and that eight bytes of one of them are
// flipped.
func TestFlipPart(t *testing.T) {
	dir := t.TempDir()
	before := bytes.Repeat([]byte{1}, 100)
	for p, want := range map[plan.Part]struct{ file, stream string }{
		plan.OfQueue:     {"$G/streams/WEIR_pay_3/msgs/2.blk", "WEIR_pay_3"},
		plan.OfKept:      {"$G/streams/WEIR_RESULTS/msgs/7.blk", "WEIR_RESULTS"},
		plan.OfState:     {"$G/streams/WEIR_RESULTS/msgs/index.db", "WEIR_RESULTS"},
		plan.OfSnapshots: {"$SYS/_js_/S-R3F-abc/snapshots/snap.1.2", ""},
		plan.OfCluster:   {"$SYS/_js_/_meta_/snapshots/snap.3.4", ""},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		if got, err := flipPart(dir, p, r); got != "" || err != nil {
			t.Errorf("%s: nothing is there, and %q was flipped: %v", p, got, err)
		}
		path := filepath.Join(dir, want.file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, before, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := flipPart(dir, p, r)
		if got != want.file || err != nil || streamOf(got) != want.stream {
			t.Errorf("%s: %q of stream %q was flipped, not %q: %v", p, got, streamOf(got), want.file, err)
		}
		after, err := os.ReadFile(path)
		if err != nil || len(after) != len(before) || bytes.Count(after, []byte{1}) != len(before)-8 {
			t.Errorf("%s: %v: %v", p, after, err)
		}
	}
}
