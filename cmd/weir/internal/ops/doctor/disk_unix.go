//go:build unix

package doctor

import "syscall"

// diskOf returns the system's number for the type of dir's file system, and the free bytes.
func diskOf(dir string) (kind, free int64, known bool) {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		return 0, 0, false
	}
	return int64(disk.Type), int64(disk.Bavail) * int64(disk.Bsize), true //nolint:unconvert // they are other types elsewhere
}
