//go:build unix

package child

import "syscall"

// halt suspends a process. It must be woken before it can stop in order.
func (p *Process) halt() { p.Signal(syscall.SIGSTOP) }
