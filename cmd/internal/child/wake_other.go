//go:build !unix

package child

// wake does nothing, because no signal suspends a process on this system.
func (*Process) wake() {}
