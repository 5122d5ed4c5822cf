package recorder

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestForeignFilesSayNothing checks that nothing is believed of the file of a live process, of another boot, of
// another version, of a copy, or of a foreign file.
func TestForeignFilesSayNothing(t *testing.T) {
	for what, spoil := range map[string]func(t *testing.T, r *Recorder) (stays bool){
		"it lives":     func(*testing.T, *Recorder) bool { return true },
		"another boot": func(t *testing.T, r *Recorder) bool { r.rewrite(t, headBoot); return false },
		"version":      func(t *testing.T, r *Recorder) bool { r.rewrite(t, headVersion); return true },
		"a copy": func(t *testing.T, r *Recorder) bool {
			r.die(t)
			data, err := os.ReadFile(r.path)
			if err == nil {
				// The link keeps the file system from giving the inode to the copy.
				err = errors.Join(os.Link(r.path, filepath.Join(t.TempDir(), "kept")), os.Remove(r.path), os.WriteFile(r.path, data, 0o600))
			}
			if err != nil {
				t.Fatal(err)
			}
			return true
		},
		"a copy with the inode of its original": func(t *testing.T, r *Recorder) bool { r.rewrite(t, headBorn); return true },
		"another's name": func(t *testing.T, r *Recorder) bool {
			r.die(t)
			if err := os.Rename(r.path, filepath.Join(r.dir, fileName(r.name+1))); err != nil {
				t.Fatal(err)
			}
			return false
		},
		"cut short": func(t *testing.T, r *Recorder) bool {
			r.die(t)
			if err := os.Truncate(r.path, headerBytes+entryBytes*2); err != nil {
				t.Fatal(err)
			}
			return true
		},
		"a pipe": func(t *testing.T, r *Recorder) bool {
			r.die(t)
			if err := errors.Join(os.Remove(r.path), syscall.Mkfifo(r.path, 0o600)); err != nil {
				t.Fatal(err)
			}
			return true
		},
		"a link": func(t *testing.T, r *Recorder) bool {
			r.die(t)
			if err := errors.Join(os.Rename(r.path, r.path+".elsewhere"), os.Symlink(r.path+".elsewhere", r.path)); err != nil {
				t.Fatal(err)
			}
			return true
		},
		"empty": func(t *testing.T, r *Recorder) bool {
			r.die(t)
			if err := os.Truncate(r.path, 0); err != nil {
				t.Fatal(err)
			}
			return true
		},
	} {
		t.Run(what, func(t *testing.T) {
			r, ids := left(t)
			stays := spoil(t, r)
			next := open(t, r.dir, small)
			for i, id := range ids {
				if f := next.Find(id, callOf(uint64(i+1))); f.State != Untold {
					t.Errorf("call %d is %d", i+1, f.State)
				}
			}
			if next.Gone(r.Name()) {
				t.Error("its process is known to have ended")
			}
			if _, err := os.Stat(r.path); stays != (err == nil) {
				t.Errorf("its file: %v", err)
			}
		})
	}
}

// rewrite changes a word of the header, with its sum, and lets the process end.
func (r *Recorder) rewrite(t *testing.T, word int) {
	t.Helper()
	head := r.header()
	head[word] ^= 1
	head[headSum] = headSumOf(head)
	r.die(t)
}

// TestGone checks that a process is known to have ended when its lock is free, and not before.
func TestGone(t *testing.T) {
	r, _ := left(t)
	next := open(t, r.dir, small)
	if next.Gone(r.Name()) || next.Gone(next.Name()) || r.Gone(next.Name()) || next.Gone("") || next.Gone("zz") || next.Gone("0000000000000001") {
		t.Fatal("one that lives, or that nobody knows, is gone")
	}
	r.die(t)
	if !next.Gone(r.Name()) {
		t.Error("it has ended")
	}
	var none *Recorder
	if none.Gone(r.Name()) || none.Name() != "" || none.Prepare(callOf(1), Entry{}) != (Entry{}) || !(Entry{}).Begin(time.Now(), 1) {
		t.Error("what is not there knows something")
	}
}

// TestUnusableFileIsReadOnce checks that weir warns once about an unusable file of an ended process, however often Gone
// asks for that process.
func TestUnusableFileIsReadOnce(t *testing.T) {
	var log bytes.Buffer
	next, err := Open(Options{Dir: t.TempDir(), Size: small, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = next.Close() })
	const name = 1
	if err := os.WriteFile(filepath.Join(next.dir, fileName(name)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if next.Gone("0000000000000001") {
			t.Error("the process of an unusable file is known to have ended")
		}
	}
	if n := strings.Count(log.String(), "unusable"); n != 1 {
		t.Errorf("weir warned %d times:\n%s", n, log.String())
	}
}

// TestAFileThatCouldNotBeReadIsReadAgain checks that weir warns once about a file that the disk does not deliver, and
// reads the file as soon as the disk delivers it.
func TestAFileThatCouldNotBeReadIsReadAgain(t *testing.T) {
	r, ids := left(t)
	var log bytes.Buffer
	next, err := Open(Options{Dir: r.dir, Size: small, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = next.Close() })
	next.read = func(*os.File) ([]byte, error) { return nil, syscall.EIO }
	r.die(t)
	for range 3 {
		if next.Gone(r.Name()) {
			t.Error("the process of a file that cannot be read is known to have ended")
		}
	}
	next.Look()
	if n := strings.Count(log.String(), "cannot be read"); n != 1 {
		t.Errorf("weir warned %d times:\n%s", n, log.String())
	}
	next.read = readFile
	if !next.Gone(r.Name()) || next.Find(ids[0], callOf(1)).State == Untold {
		t.Error("the file was not read again")
	}
}

// TestUnusableFilesAreForgotten checks that weir keeps no names of files that are gone.
func TestUnusableFilesAreForgotten(t *testing.T) {
	r := open(t, t.TempDir(), small)
	for name := range uint64(2) {
		if err := os.WriteFile(filepath.Join(r.dir, fileName(name+1)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.Look()
	r.read = func(*os.File) ([]byte, error) { return nil, syscall.EIO }
	if err := os.WriteFile(filepath.Join(r.dir, fileName(3)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.Look()
	if len(r.former.useless) != 2 || len(r.former.unread) != 1 {
		t.Fatalf("%d files are unusable, %d unread", len(r.former.useless), len(r.former.unread))
	}
	for _, name := range []uint64{1, 3} {
		if err := os.Remove(filepath.Join(r.dir, fileName(name))); err != nil {
			t.Fatal(err)
		}
	}
	r.Look()
	if len(r.former.useless) != 1 || len(r.former.unread) != 0 {
		t.Errorf("%d files are unusable, %d unread", len(r.former.useless), len(r.former.unread))
	}
}

// TestUnusableFilesHideNoOther checks that a usable file is found behind more unusable ones than one Look considers.
func TestUnusableFilesHideNoOther(t *testing.T) {
	r, ids := left(t)
	for name := range uint64(mostFiles) {
		if err := os.WriteFile(filepath.Join(r.dir, fileName(name+1)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.die(t)
	next := open(t, r.dir, small)
	next.Look()
	if next.Former() != 1 || next.Find(ids[0], callOf(1)).State == Untold {
		t.Errorf("%d usable files were found", next.Former())
	}
}

// TestFilesOfTheDeadAreBounded checks that the files of ended processes are bounded, and go when they are
// settled.
func TestFilesOfTheDeadAreBounded(t *testing.T) {
	dir, last := t.TempDir(), ""
	for range mostLives + 5 {
		r := open(t, dir, small)
		last = r.Name()
		r.Prepare(callOf(1), Entry{})
		r.die(t)
	}
	r := open(t, dir, small)
	if r.Former() != mostLives {
		t.Errorf("%d", r.Former())
	}
	if !r.Gone(last) {
		t.Error("the newest file went, and not the oldest")
	}
	if r.Retire(time.Hour); r.Former() != mostLives {
		t.Error("they were to be kept")
	}
	r.Retire(0)
	files, _ := os.ReadDir(dir)
	if r.Former() != 0 || len(files) != 1 {
		t.Errorf("%d are left, %d files", r.Former(), len(files))
	}
	info, err := os.Stat(r.path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestABrokenFileIsGivenUp checks that the process continues if the disk cannot provide a page, and that what
// the file said is not believed any more.
func TestABrokenFileIsGivenUp(t *testing.T) {
	r := open(t, t.TempDir(), small)
	e := r.Prepare(callOf(1), Entry{})
	if err := r.file.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if !e.Begin(time.Now(), 1) {
		t.Error("the call may be made: its file is gone")
	}
	if _, err := os.Stat(r.path); err == nil {
		t.Error("the file is there still, and says that the call has not begun")
	}
	e.Left()
	e.Answer(answerFor(1))
	e.Settle()
	e.LetGo()
	if r.Prepare(callOf(2), Entry{}) != (Entry{}) {
		t.Error("something is noted")
	}
}

// TestNoCallBeginsBeforeABrokenFileIsGone checks that a call does not begin as long as a file that cannot be written
// still says that it has not begun.
func TestNoCallBeginsBeforeABrokenFileIsGone(t *testing.T) {
	r := open(t, t.TempDir(), small)
	first, second := r.Prepare(callOf(1), Entry{}), r.Prepare(callOf(2), Entry{})
	r.unlink = func(path string) error {
		if second.Begin(time.Now(), 1) {
			t.Error("a call begins, and the file says that it has not begun")
		}
		return os.Remove(path)
	}
	if err := r.file.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if !first.Begin(time.Now(), 1) || !second.Begin(time.Now(), 1) {
		t.Error("a call does not begin although the file is gone")
	}
}

// header are the words of the header.
func (r *Recorder) header() []uint64 { return r.words[:headerBytes/8] }
