//go:build unix

package weirtest

import (
	"syscall"
)

// What stops a process, and what has it go on.
const Freezes, Thaws = syscall.SIGSTOP, syscall.SIGCONT
