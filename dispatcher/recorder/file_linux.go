package recorder

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"weir/bucket/fault"

	"golang.org/x/sys/unix"
)

// localSystems lists file systems on which the local kernel keeps the locks, and a mapping shares the file's pages. On
// a network file system a process may lose its lock while it lives.
var localSystems = []uint32{
	unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC,
	0x2fc12fc1, // ZFS
	0xca451a4e, // bcachefs
}

const zeros = 1 << 20 // bytes in one write

// create makes this process's file, locks it before it appears under its name, and maps it.
func (r *Recorder) create() (err error) {
	if r.boot, err = bootID(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnfit, err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(r.dir, &fs); err != nil {
		return fmt.Errorf("%w: %w", ErrUnfit, err)
	}
	if !slices.Contains(localSystems, uint32(fs.Type)) {
		return fmt.Errorf("%w: %s is on a file system of type %#x, whose locks may be lost while the process lives: name a directory on a local disk or in memory",
			ErrUnfit, r.dir, fs.Type)
	}
	temporary := r.path + unbornSuffix
	file, err := os.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnfit, err)
	}
	if err = r.fill(file); err == nil {
		err = os.Rename(temporary, r.path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%w: %w", ErrUnfit, err), os.Remove(temporary), file.Close())
	}
	r.file = file
	return nil
}

// fill locks a new file, allocates all its disk space, and writes its header. If a page had no disk space, a write to
// it would fault, and the recorder would be given up (written).
func (r *Recorder) fill(file *os.File) error {
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("lock it: %w", err)
	}
	size := r.size.bytes()
	empty := make([]byte, zeros)
	for at := int64(0); at < size; at += zeros {
		if _, err := file.WriteAt(empty[:min(zeros, size-at)], at); err != nil {
			return err
		}
	}
	data, err := unix.Mmap(int(file.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map it: %w", err)
	}
	r.data = data
	head := make([]uint64, headerBytes/8)
	device, inode, born := placeOf(file)
	copy(head, []uint64{magic, version, uint64(r.size.Entries), uint64(r.size.Chunks), r.name, device, inode, born, uint64(os.Getpid()), uint64(time.Now().UnixNano())})
	boot := make([]byte, (headSum-headBoot)*8)
	copy(boot, r.boot)
	copy(head[headBoot:], wordsOf(boot))
	head[headSum] = headSumOf(head)
	for i, word := range head {
		binary.NativeEndian.PutUint64(data[i*8:], word)
	}
	return nil
}

func unmap(data []byte) error { return unix.Munmap(data) }

// bootID returns the identifier that the kernel made when this machine was started.
func bootID() (string, error) {
	if id := fault.Boot(); id != "" {
		return id, nil
	}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	const letters = 36
	if text := strings.TrimSpace(string(id)); err == nil && len(text) == letters {
		return text, nil
	}
	return "", errors.Join(errors.New("this system does not report when it was started"), err)
}

// placeOf returns a file's device, inode and time of birth. A copy of the file has others. A file system may give a copy
// the inode of a file that was removed, but its time of birth is another one.
func placeOf(file *os.File) (device, inode, born uint64) {
	var s unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &s); err != nil {
		return 0, 0, 0
	}
	var more unix.Statx_t // without a time of birth, device and inode must do
	if unix.Statx(int(file.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &more) == nil && more.Mask&unix.STATX_BTIME != 0 {
		born = uint64(time.Unix(more.Btime.Sec, int64(more.Btime.Nsec)).UnixNano()) //nolint:gosec // only compared
	}
	return uint64(s.Dev), s.Ino, born //nolint:unconvert // it is no uint64 everywhere
}

// openEnded opens a file if its process has ended. The lock of such a file is free: a process locks its file before the
// file can be found, and the kernel releases the lock when the process ends. openEnded follows no links, and does not
// block on a pipe.
func openEnded(path string) (file *os.File, ended bool) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, false
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = file.Close() // nothing was done with it
		return nil, false
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		_ = file.Close() // nothing was done with it
		return nil, false
	}
	return file, true
}

// readFile reads a whole file, unless it is larger than a recorder's file can be.
func readFile(file *os.File) ([]byte, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > (Size{1 << 20, 1 << 16}).bytes() {
		return nil, errTooLarge
	}
	data := make([]byte, info.Size())
	_, err = io.ReadFull(file, data)
	return data, err
}
