package machine

import "syscall"

// ChildAttributes let a child die with this process, however that ends, and keep the terminal's Ctrl-C from it: it is
// stopped by this process, in order.
func ChildAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
