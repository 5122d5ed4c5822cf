//go:build unix

package httpcall

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// hearsAtOnce says whether a socket's bytes are received and noted in one step.
const hearsAtOnce = true

// receive reads from the socket. Code that holds the turns' lock finds each byte that came either in the socket or
// noted, never in between.
func (c *heardConn) receive(p []byte) (n int, err error) {
	var failed error
	stopped := c.socket.Read(func(fd uintptr) (done bool) {
		c.turns.mu.Lock()
		defer c.turns.mu.Unlock()
		for {
			n, failed = syscall.Read(int(fd), p)
			switch {
			case errors.Is(failed, syscall.EINTR):
				continue
			case errors.Is(failed, syscall.EAGAIN):
				return false // the runtime makes sockets non-blocking: it waits, and calls again
			}
			n = max(n, 0)
			c.turns.receivedLocked(p[:n])
			return true
		}
	})
	var op *net.OpError
	switch {
	case errors.As(stopped, &op): // the connection was closed, or its time is up
		return 0, &net.OpError{Op: "read", Net: op.Net, Source: op.Source, Addr: op.Addr, Err: op.Err}
	case stopped != nil:
		return 0, stopped
	case failed != nil:
		return 0, &net.OpError{Op: "read", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError("read", failed)}
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// isUnread reports whether a socket holds something that was not received yet: bytes, or the connection's end. It does
// not block.
func isUnread(socket syscall.RawConn) (is bool) {
	var one [1]byte
	err := socket.Control(func(fd uintptr) {
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK)
		is = !errors.Is(err, syscall.EAGAIN) // the runtime makes all sockets non-blocking
	})
	return is || err != nil
}
