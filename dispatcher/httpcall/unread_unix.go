//go:build unix

package httpcall

import (
	"errors"
	"syscall"
)

// isUnread reports whether something has come on a socket that nobody has read yet: bytes, or its end. It does not block.
func isUnread(socket syscall.RawConn) (is bool) {
	var one [1]byte
	err := socket.Control(func(fd uintptr) {
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK)
		is = !errors.Is(err, syscall.EAGAIN) // the runtime has all sockets such that nothing blocks
	})
	return is || err != nil
}
