package machine

import "syscall"

// ChildAttributes returns attributes that kill a child when this process ends, however it ends. They also keep the
// terminal's Ctrl-C from the child, so that this process can stop the child in order.
func ChildAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
