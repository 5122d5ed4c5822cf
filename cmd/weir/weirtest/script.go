package weirtest

import (
	"errors"
	"os/exec"
)

// ExitCode is a process's exit code, -1 where it had none.
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
