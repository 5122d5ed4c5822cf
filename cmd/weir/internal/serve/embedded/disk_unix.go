//go:build unix

package embedded

import "syscall"

// diskLeft returns how many bytes an unprivileged user may still write to the file system of dir. The types of
// Statfs_t's fields differ between systems.
func diskLeft(dir string) (int64, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	return int64(fs.Bavail) * int64(fs.Bsize), nil //nolint:unconvert // on other systems they are no int64
}
