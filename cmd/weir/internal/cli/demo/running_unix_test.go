//go:build unix

package demo

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
)

// running reports whether a process lives. A zombie does not.
func running(pid string) bool {
	n, err := strconv.Atoi(pid)
	if err != nil || syscall.Kill(n, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n))
	return err != nil && runtime.GOOS != "linux" || err == nil && !bytes.Contains(stat, []byte(") Z "))
}
