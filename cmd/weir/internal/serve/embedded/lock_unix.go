//go:build unix

package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// dirLock prevents two workers from writing to one store. It locks the directory itself, because a lock file could be
// deleted, and a new file locked in its place. It also locks the file weir.lock, because some file systems cannot lock
// directories. The kernel releases the locks when the descriptors are closed.
type dirLock struct{ dir, file *os.File }

// lockDir creates a data directory if it is missing, and locks it. It fails at once if another process has the lock, or
// if the path meanwhile leads to another directory.
func lockDir(path string) (*dirLock, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, notWritable(err)
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, notWritable(err)
	}
	l := &dirLock{dir: dir}
	if err := flock(dir); err != nil && !errors.Is(err, errNoLock) {
		return nil, errors.Join(notLocked(path, err), l.Close())
	}
	if l.file, err = os.OpenFile(filepath.Join(path, "weir.lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, errors.Join(notWritable(err), l.Close())
	}
	if err := flock(l.file); err != nil {
		return nil, errors.Join(notLocked(path, err), l.Close())
	}
	if !l.holds(path) {
		return nil, errors.Join(fmt.Errorf("data directory %s: it was replaced by another one during the start", path), l.Close())
	}
	return l, nil
}

// errNoLock reports that the file system cannot lock a directory or a file. Some, for example NFS, cannot lock
// directories: then the lock of the file weir.lock must suffice.
var errNoLock = errors.New("the file system cannot lock it")

func flock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	for _, none := range []error{syscall.EBADF, syscall.EINVAL, syscall.ENOTSUP, syscall.ENOLCK} {
		if errors.Is(err, none) {
			return fmt.Errorf("%w: %w", errNoLock, err)
		}
	}
	return err
}

// holds reports whether the two paths still lead to the locked directory and file.
func (l *dirLock) holds(path string) bool {
	for of, f := range map[string]*os.File{path: l.dir, filepath.Join(path, "weir.lock"): l.file} {
		there, err := os.Stat(of)
		if err != nil {
			return false
		}
		if locked, err := f.Stat(); err != nil || !os.SameFile(there, locked) {
			return false
		}
	}
	return true
}

// Close unlocks and closes the directory and the file. It unlocks explicitly, because a child process that is just
// being started has copies of the descriptors, which would keep the locks until the child's exec.
func (l *dirLock) Close() error {
	var failed error
	for _, f := range []*os.File{l.file, l.dir} {
		if f != nil {
			_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) // if there is no lock, closing is enough
			failed = errors.Join(failed, f.Close())
		}
	}
	return failed
}

func notLocked(path string, err error) error {
	if errors.Is(err, errNoLock) {
		return fmt.Errorf("the file system of the data directory %s has no locks (%w): set WEIR_DATA_DIR to a directory on a local disk", path, err)
	}
	return fmt.Errorf("another weir uses the data directory %s: stop it, or set WEIR_DATA_DIR", path)
}
