package disk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"unsafe"
)

// driveSize is the size of a drive in bytes. The file behind a drive takes only what was written.
const driveSize = 4 << 30

// The request that shuts a file system down, FS_IOC_SHUTDOWN of Linux, and its argument: nothing in memory is written,
// not even the journal.
const (
	shutDown  = 0x8004587d
	noLogSync = 2
)

// Drive is a file system of its own, of which the power can be cut. It is ext4 on a file, as a disk whose own cache
// survives. Its journal is written for syncs, and not by a timer.
type Drive struct{ image, dir string }

// NewDrive makes a drive on the file image and mounts it on dir. It needs the right to mount.
func NewDrive(image, dir string) (*Drive, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a drive: %w", err)
	}
	file, err := os.OpenFile(image, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make a drive: %w", err)
	}
	if err := errors.Join(file.Truncate(driveSize), file.Close()); err != nil {
		return nil, fmt.Errorf("make a drive: %w", err)
	}
	d := &Drive{image, dir}
	if err := execute("mkfs.ext4", "-q", "-F", "-N", "65536", "-E", "lazy_itable_init=1,lazy_journal_init=1", image); err != nil {
		return nil, err
	}
	return d, d.mount()
}

func (d *Drive) mount() error {
	return execute("mount", "-t", "ext4", "-o", "loop,commit=3600,noinit_itable", d.image, d.dir)
}

// Cut cuts the power: what was not synced is lost. Then it mounts the drive, as at the next boot. The caller must have
// killed every process that uses the drive.
func (d *Drive) Cut() error {
	dir, err := os.Open(d.dir)
	if err != nil {
		return fmt.Errorf("cut the power: %w", err)
	}
	how := uint32(noLogSync)
	_, _, failed := syscall.Syscall(syscall.SYS_IOCTL, dir.Fd(), shutDown, uintptr(unsafe.Pointer(&how)))
	_ = dir.Close()
	if failed != 0 {
		return fmt.Errorf("cut the power of %s: %w", d.dir, failed)
	}
	if err := syscall.Unmount(d.dir, 0); err != nil {
		return fmt.Errorf("unmount %s after a power cut: %w", d.dir, err)
	}
	return d.mount()
}

// Close unmounts the drive. The caller must have ended every process that uses it.
func (d *Drive) Close() error {
	if err := syscall.Unmount(d.dir, syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", d.dir, err)
	}
	return nil
}

// execute runs a program of the system to its end.
func execute(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}
