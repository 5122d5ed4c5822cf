//go:build unix && !linux

package torture

import "errors"

// drive does not exist on this system.
type drive struct{}

func newDrive(string, string) (*drive, error) {
	return nil, errors.New("the power of a drive can be cut only on Linux")
}

func (d *drive) cut() error   { return nil }
func (d *drive) close() error { return nil }
