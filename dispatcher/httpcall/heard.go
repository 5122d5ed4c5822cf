package httpcall

import (
	"net"
	"syscall"
)

// heardConn is a socket below TLS. It receives bytes and notes them in its turns in one step.
type heardConn struct {
	net.Conn
	socket syscall.RawConn // nil if the connection has none
	turns  *turns
}

// newHeardConn returns a connection that notes what raw receives. If secure is true, it also follows TLS records.
func newHeardConn(raw net.Conn, secure bool) *heardConn {
	c := &heardConn{Conn: raw, turns: &turns{moved: make(chan struct{}, 1)}}
	if of, ok := raw.(syscall.Conn); ok {
		if socket, err := of.SyscallConn(); err == nil {
			c.socket = socket
		}
	}
	c.turns.isUnread = func() bool { return c.socket != nil && isUnread(c.socket) }
	if secure {
		c.turns.records = &records{}
	}
	return c
}

// Read implements net.Conn.
func (c *heardConn) Read(p []byte) (int, error) {
	c.turns.read()
	if c.socket == nil || len(p) == 0 {
		n, err := c.Conn.Read(p)
		c.turns.mu.Lock()
		c.turns.receivedLocked(p[:n])
		c.turns.mu.Unlock()
		return n, err
	}
	return c.receive(p)
}

// records tells whether a TLS record has come only in part.
type records struct {
	head [5]byte // its type, its version, and the length of what follows
	read int     // bytes of the head that have come
	left int     // bytes after the head that are still to come
}

// pass notes bytes that have come.
func (r *records) pass(came []byte) {
	for len(came) > 0 {
		if r.left > 0 {
			n := min(r.left, len(came))
			r.left, came = r.left-n, came[n:]
			continue
		}
		r.head[r.read] = came[0]
		r.read, came = r.read+1, came[1:]
		if r.read == len(r.head) {
			r.read, r.left = 0, int(r.head[3])<<8|int(r.head[4])
		}
	}
}

func (r *records) torn() bool { return r.read > 0 || r.left > 0 }
