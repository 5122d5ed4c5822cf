//go:build unix && !linux

package main

import "syscall"

// childAttributes keep the terminal's Ctrl-C from a child: it is stopped by this process, in order.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
