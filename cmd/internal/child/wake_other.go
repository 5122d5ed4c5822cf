//go:build !unix

package child

// wake does nothing: no signal stops a process here.
func (*Process) wake() {}
