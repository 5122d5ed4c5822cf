//go:build unix && !linux

package restoreguard

import (
	"fmt"
	"os"
	"syscall"
)

// identify returns the inode of a file.
func identify(path string) (identity, error) {
	info, err := os.Stat(path)
	if err != nil {
		return identity{}, fmt.Errorf("look at %s: %w", path, err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}, fmt.Errorf("look at %s: the system does not tell its inode", path)
	}
	return identity{Inode: uint64(st.Ino)}, nil
}

// unlasting returns why the inodes of a directory's files do not last, "" if they last.
func unlasting(string) string { return "" }
