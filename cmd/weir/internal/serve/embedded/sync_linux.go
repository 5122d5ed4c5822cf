package embedded

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// syncPath syncs a file's data and size to disk. If path is a directory, it syncs the names in it.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open what is to be synced: %w", err)
	}
	err = unix.Fdatasync(int(f.Fd()))
	for errors.Is(err, unix.EINTR) {
		err = unix.Fdatasync(int(f.Fd()))
	}
	if closed := f.Close(); err == nil && closed != nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}
