//go:build !unix

package httpcall

import "syscall"

// hearsAtOnce says that a socket's bytes are noted only after they were received. So no connection takes a second call.
const hearsAtOnce = false

func (c *heardConn) receive(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.turns.mu.Lock()
	c.turns.receivedLocked(p[:n])
	c.turns.mu.Unlock()
	return n, err
}

// isUnread cannot see bytes that are still in the socket on this system: only received ones are known.
func isUnread(syscall.RawConn) bool { return false }
