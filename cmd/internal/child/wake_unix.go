//go:build unix

package child

import "syscall"

// wake continues a process that a signal has suspended.
func (p *Process) wake() { p.Signal(syscall.SIGCONT) }
