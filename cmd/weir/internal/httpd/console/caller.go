package console

import (
	"context"
	"net"
	"net/netip"
	"sync"
)

// overflowUID is the user id that Linux reports for users unknown in a user namespace. It may stand for any user.
const overflowUID = 65534

// caller identifies the process that made a connection. It is safe for concurrent use.
type caller struct {
	client, server netip.AddrPort // zero if they are no TCP addresses

	once  sync.Once // the kernel is asked once a connection, when user is first called
	uid   int
	found bool
}

// callerKey is the key of a connection's caller in the contexts of its requests.
type callerKey struct{}

// withCaller implements http.Server's ConnContext.
func withCaller(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, callerKey{}, &caller{client: addrPort(conn.RemoteAddr()), server: addrPort(conn.LocalAddr())})
}

func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
}

// callerOf returns the caller of a request's connection, or a caller of which nothing is known.
func callerOf(ctx context.Context) *caller {
	if c, ok := ctx.Value(callerKey{}).(*caller); ok {
		return c
	}
	return &caller{}
}

// user returns the user's id as long as the connection is open; known is false if the kernel does not tell. The first
// call asks the kernel, which takes some microseconds, or milliseconds if the kernel's table must be read.
func (c *caller) user() (uid int, known bool) {
	c.once.Do(func() {
		if c.client.IsValid() && c.server.IsValid() {
			c.uid, c.found = userOf(c.client, c.server)
		}
	})
	return c.uid, c.found
}
