package restoreguard

import (
	"errors"
	"fmt"
)

// identify returns what identifies a file.
func identify(path string) (identity, error) {
	return identity{}, fmt.Errorf("look at %s: %w", path, errors.ErrUnsupported)
}

// unlasting returns why the files of a directory have no lasting inodes.
func unlasting(string) string { return "Windows has no inodes" }
