//go:build unix

package main

import "syscall"

// What stops a process, and what has it go on.
const freezes, thaws = syscall.SIGSTOP, syscall.SIGCONT
