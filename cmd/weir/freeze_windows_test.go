package main

import "syscall"

// No signal stops a process on Windows: to send one fails.
const freezes, thaws = syscall.Signal(0x13), syscall.Signal(0x12)
