//go:build unix

package worker

import "syscall"

// openFiles returns how many files and connections the process may have open. The Go runtime has already raised the
// limit as far as the system permits.
func openFiles() int64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return mostFiles
	}
	return int64(min(uint64(limit.Cur), mostFiles)) //nolint:unconvert // on other systems it is signed
}
