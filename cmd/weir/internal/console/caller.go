package console

import (
	"context"
	"net"
	"net/netip"
	"sync"
)

// overflowUID is whom Linux shows in the place of users that a user namespace does not know. Whoever has it may be anybody.
const overflowUID = 65534

// caller is whose process made a connection. It is safe for concurrent use.
type caller struct {
	client, server netip.AddrPort // the zero value where they are no TCP addresses

	once  sync.Once // the kernel is asked once for each connection, when first somebody wants to know
	uid   int
	known bool
}

// callerKey has a connection's caller in the contexts of its requests.
type callerKey struct{}

// withCaller is an http.Server's ConnContext.
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

// callerOf is who made the connection of a request; one of whom nothing is known where there is none.
func callerOf(ctx context.Context) *caller {
	if c, ok := ctx.Value(callerKey{}).(*caller); ok {
		return c
	}
	return &caller{}
}

// user is the user's id, for as long as the connection is open; known is false where the kernel does not tell. The first one asks, which
// takes some microseconds, or milliseconds where the kernel's table must be read.
func (c *caller) user() (uid int, known bool) {
	c.once.Do(func() {
		if c.client.IsValid() && c.server.IsValid() {
			c.uid, c.known = userOf(c.client, c.server)
		}
	})
	return c.uid, c.known
}
