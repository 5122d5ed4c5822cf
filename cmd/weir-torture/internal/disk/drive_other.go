//go:build unix && !linux

package disk

import "errors"

// Drive does not exist on this system.
type Drive struct{}

func NewDrive(string, string) (*Drive, error) {
	return nil, errors.New("the power of a drive can be cut only on Linux")
}

func (d *Drive) Cut() error   { return nil }
func (d *Drive) Close() error { return nil }
