package disk

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDriveLosesWhatWasNotSynced checks that a power cut takes what was written and not synced, and nothing else: bytes
// of a file, a file, and a rename. A later cut takes no more.
func TestDriveLosesWhatWasNotSynced(t *testing.T) {
	dir := t.TempDir()
	d, err := NewDrive(filepath.Join(dir, "image"), filepath.Join(dir, "mounted"))
	if err != nil {
		t.Skipf("no drive can be made here: %v", err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	at := func(name string) string { return filepath.Join(d.dir, name) }
	write := func(name, text string, flags int) *os.File {
		t.Helper()
		f, err := os.OpenFile(at(name), os.O_CREATE|os.O_WRONLY|flags, 0o600)
		if err == nil {
			_, err = f.WriteString(text)
		}
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	read := func(name string) string {
		text, err := os.ReadFile(at(name))
		if err != nil {
			return "missing"
		}
		return string(text)
	}
	grows := write("grows", "synced", 0)
	if err := grows.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := write("each write is synced", "whole", os.O_SYNC).Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(at("each write is synced"), at("renamed")); err != nil {
		t.Fatal(err)
	}
	if _, err := grows.WriteString(", and not"); err != nil {
		t.Fatal(err)
	}
	_ = grows.Close()
	_ = write("never synced", "gone", 0).Close()
	if got := read("grows") + read("never synced") + read("renamed"); got != "synced, and notgonewhole" {
		t.Errorf("before the cut the files have %q", got)
	}
	for range 2 {
		if err := d.Cut(); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{
			"grows": "synced", "never synced": "missing", "renamed": "missing", "each write is synced": "whole",
		} {
			if got := read(name); got != want {
				t.Errorf("after the cut %q has %q, want %q", name, got, want)
			}
		}
	}
}
