//go:build unix

package doctor

import "syscall"

// diskOf returns the type of the file system that holds dir, as the system numbers it, and its free bytes.
func diskOf(dir string) (kind, free int64, known bool) {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		return 0, 0, false
	}
	return int64(disk.Type), int64(disk.Bavail) * int64(disk.Bsize), true //nolint:unconvert // they are other types elsewhere
}
