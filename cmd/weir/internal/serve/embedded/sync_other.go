//go:build !linux

package embedded

import (
	"errors"
	"fmt"
	"os"
)

// syncPath syncs a file's data to disk. If path is a directory, it syncs the names in it.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open what is to be synced: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}
