//go:build unix

package program

import "syscall"

// Freezes and Thaws are the signals that stop a process and let it continue.
const Freezes, Thaws = syscall.SIGSTOP, syscall.SIGCONT
