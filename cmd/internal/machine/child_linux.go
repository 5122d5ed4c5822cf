package machine

import "syscall"

// ChildAttributes returns attributes that make a child die with this process, however that ends, and that keep the
// terminal's Ctrl-C from the child: this process stops it in order.
func ChildAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
