package weirtest

import "syscall"

// No signal stops a process on Windows: sending one of these fails.
const Freezes, Thaws = syscall.Signal(0x13), syscall.Signal(0x12)
