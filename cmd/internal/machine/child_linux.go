package machine

import "syscall"

// ChildAttributes returns attributes that kill a child when this process ends, in whatever way, and that keep the
// terminal's Ctrl-C from the child, so that this process can stop it in order.
func ChildAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
