//go:build unix && !linux

package machine

import "syscall"

// ChildAttributes returns attributes that keep the terminal's Ctrl-C from a child: this process stops it in order.
func ChildAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
