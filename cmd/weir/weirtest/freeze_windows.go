package weirtest

import "syscall"

// Freezes are signals that fail: no signal stops a process on Windows.
const Freezes, Thaws = syscall.Signal(0x13), syscall.Signal(0x12)
