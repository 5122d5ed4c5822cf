//go:build unix

package child

import "syscall"

// wake has a process go on that a signal stopped.
func (p *Process) wake() { p.Signal(syscall.SIGCONT) }
