//go:build unix

package child

import "syscall"

// halt stops a process: it must be woken to end in order.
func (p *Process) halt() { p.Signal(syscall.SIGSTOP) }
