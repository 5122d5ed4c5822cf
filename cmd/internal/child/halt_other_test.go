//go:build !unix

package child

// halt does nothing: no signal stops a process here.
func (p *Process) halt() {}
