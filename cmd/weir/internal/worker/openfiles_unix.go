//go:build unix

package worker

import "syscall"

// openFiles is how many files, connections among them, the process may have open. The Go runtime has raised it as far as it may by now.
func openFiles() int64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return mostFiles
	}
	return int64(min(uint64(limit.Cur), mostFiles)) //nolint:unconvert // on other systems it is signed
}
