package machine

import "syscall"

// ChildAttributes returns attributes that keep the console's Ctrl-C from a child: this process stops it in order.
func ChildAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
