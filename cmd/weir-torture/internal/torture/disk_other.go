//go:build unix && !linux

package torture

import "errors"

// disk does not exist on this system.
type disk struct{ dir string }

func newDisk(string) (*disk, error) {
	return nil, errors.New("a small disk can be mounted only on Linux")
}

func (d *disk) fill() error  { return nil }
func (d *disk) free() error  { return nil }
func (d *disk) close() error { return nil }
