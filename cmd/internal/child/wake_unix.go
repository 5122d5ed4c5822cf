//go:build unix

package child

import "syscall"

// wake lets a process continue that a signal stopped.
func (p *Process) wake() { p.Signal(syscall.SIGCONT) }
