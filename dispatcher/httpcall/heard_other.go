//go:build !unix

package httpcall

import "syscall"

// hearsAtOnce says whether a socket's bytes are received and noted in one step. On this system they are noted later, so
// no connection takes a second call.
const hearsAtOnce = false

func (c *heardConn) receive(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.turns.mu.Lock()
	c.turns.receivedLocked(p[:n])
	c.turns.mu.Unlock()
	return n, err
}

// isUnread always returns false: on this system, bytes that are still in the socket cannot be seen.
func isUnread(syscall.RawConn) bool { return false }
