package weirtest

import (
	"errors"
	"os/exec"
)

// ExitCode returns a process's exit code, or -1 if err has none.
func ExitCode(err error) int {
	var ended *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ended):
		return ended.ExitCode()
	}
	return -1
}
