//go:build unix

package bulksubmit

import (
	"errors"
	"os"
	"syscall"
)

// lock locks a journal until its file is closed. It fails at once if another process has the lock. On a file system
// without locks it does nothing.
func lock(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errInUse
	}
	return nil
}
