//go:build !unix

package httpcall

import "syscall"

// isUnread cannot tell here what has come on a socket: only what was read of it is known.
func isUnread(syscall.RawConn) bool { return false }
