package restoreguard

import (
	"errors"
	"fmt"
)

// identify always fails.
func identify(path string) (identity, error) {
	return identity{}, fmt.Errorf("look at %s: %w", path, errors.ErrUnsupported)
}

// unlasting returns why the inodes of a directory's files do not last.
func unlasting(string) string { return "Windows has no inodes" }
