//go:build !unix

package child

// halt does nothing, because no signal suspends a process on this system.
func (p *Process) halt() {}
