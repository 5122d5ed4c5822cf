//go:build unix && !linux

package machine

import "syscall"

// ChildAttributes keep the terminal's Ctrl-C from a child: it is stopped by this process, in order.
func ChildAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
