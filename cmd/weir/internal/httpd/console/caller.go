package console

import (
	"context"
	"net"
	"net/netip"
	"sync"
)

// overflowUID is the user id that Linux reports for a user that does not exist in weir's user namespace. It may stand
// for any user.
const overflowUID = 65534

// caller identifies the process at the other end of a connection. It is safe for concurrent use.
type caller struct {
	client, server netip.AddrPort // zero if the addresses are not TCP

	once  sync.Once // user asks the kernel once per connection
	uid   int
	found bool
}

// callerKey is the key of the caller in the context of a connection and its requests.
type callerKey struct{}

// withCaller adds the caller of a connection to ctx. It is an http.Server.ConnContext.
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

// callerOf returns the caller of a request's connection. Without one it returns a caller without addresses.
func callerOf(ctx context.Context) *caller {
	if c, ok := ctx.Value(callerKey{}).(*caller); ok {
		return c
	}
	return &caller{}
}

// user returns the user id of the connecting process. known is false if the kernel did not tell it. The first call must
// come while the connection is open, because it asks the kernel. That takes microseconds, or milliseconds if weir must
// read the kernel's table.
func (c *caller) user() (uid int, known bool) {
	c.once.Do(func() {
		if c.client.IsValid() && c.server.IsValid() {
			c.uid, c.found = userOf(c.client, c.server)
		}
	})
	return c.uid, c.found
}
