package program

import "syscall"

// Freezes and Thaws are signals that fail: on Windows no signal stops a process.
const Freezes, Thaws = syscall.Signal(0x13), syscall.Signal(0x12)
