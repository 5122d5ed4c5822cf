//go:build unix

package weirtest

import (
	"syscall"
)

// The signals that stop a process and let it continue.
const Freezes, Thaws = syscall.SIGSTOP, syscall.SIGCONT
