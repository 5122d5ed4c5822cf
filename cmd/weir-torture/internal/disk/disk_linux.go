package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// diskSize is the size of the disk in bytes: small enough to be filled, and large enough for a run.
const diskSize = 768 << 20

// Disk is a file system in memory, of its own, that can be filled.
type Disk struct{ dir string }

// NewDisk mounts a disk on dir. It needs the right to mount.
func NewDisk(dir string) (*Disk, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a small disk: %w", err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", diskSize)); err != nil {
		return nil, fmt.Errorf("mount a small disk: %w", err)
	}
	return &Disk{dir}, nil
}

func (d *Disk) filler() string { return filepath.Join(d.dir, "filler") }

// Fill uses up all free space.
func (d *Disk) Fill() error {
	f, err := os.OpenFile(d.filler(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("fill the disk: %w", err)
	}
	for piece := make([]byte, 1<<20); len(piece) > 0; {
		if _, err = f.Write(piece); errors.Is(err, syscall.ENOSPC) {
			piece = piece[:len(piece)/2]
		} else if err != nil {
			return errors.Join(fmt.Errorf("fill the disk: %w", err), f.Close())
		}
	}
	return f.Close()
}

// Free deletes the file that Fill wrote.
func (d *Disk) Free() error { return os.Remove(d.filler()) }

// Close unmounts the disk, which then is gone.
func (d *Disk) Close() error {
	if err := syscall.Unmount(d.dir, syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", d.dir, err)
	}
	return nil
}
