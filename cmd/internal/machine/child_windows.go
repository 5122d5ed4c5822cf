package machine

import "syscall"

// ChildAttributes keep the console's Ctrl-C from a child: it is stopped by this process, in order.
func ChildAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
