package torture

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRewritesAreSeen checks that a block counts as rewritten while its new file is beside it and after the rename, and
// that a block that only grows does not.
func TestRewritesAreSeen(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	blocks := rewrites{dirs: []string{filepath.Join(dir, "none"), dir}, files: map[string]os.FileInfo{}}
	look := func() string { return blocks.look(dir) }
	if got := look() + blocks.look(blocks.dirs[0]); got != "" {
		t.Errorf("without a block, %s", got)
	}
	write("1.blk", "a message")
	write("index.db", "a state")
	if got := look(); got != "" {
		t.Errorf("a new block: %s", got)
	}
	write("1.blk", "a message, and another")
	if got := look(); got != "" {
		t.Errorf("a block that grew: %s", got)
	}
	write("1.new", "another")
	if got := blocks.await(t.Context()); !strings.Contains(got, "1.new is being written") {
		t.Errorf("a new file beside its block: %q", got)
	}
	if err := os.Rename(filepath.Join(dir, "1.new"), filepath.Join(dir, "1.blk")); err != nil {
		t.Fatal(err)
	}
	if got := look(); !strings.Contains(got, "1.blk was replaced: 22 bytes before, 7 now") {
		t.Errorf("a block that was replaced: %q", got)
	}
	if got := look(); got != "" {
		t.Errorf("a block that was replaced once: %s", got)
	}
}
