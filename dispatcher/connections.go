package dispatcher

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// connections are the open connections to one api. A job claims one before it asks for a slot, so that a slow dial or
// TLS handshake never makes a call arrive later than its slot: the slot is taken when only the request is left to send.
//
// Only HTTP/1.1 is spoken: one call, one connection. What was sent is then certain, and no library sends a call again
// on its own.
type connections struct {
	transport *http.Transport
	address   string
	tls       *tls.Config // nil for http
	dialer    net.Dialer

	mu      sync.Mutex
	spare   []net.Conn // dialled ahead, for the transport to take
	alive   int        // all open ones
	claimed int        // claims, each for one call to come or running
}

// Bounds of connecting. An idle connection that the server closes at the moment of a call leaves that call unknown, so
// for an api that must not be called twice idle connections are kept only briefly: many servers close theirs after 5 s.
const (
	dialTimeout      = 10 * time.Second
	idleIdempotent   = 30 * time.Second
	idleUnrepeatable = 2 * time.Second
	maxHeaderBytes   = 1 << 20
)

func newConnections(base *url.URL, idle time.Duration, maxIdle int) *connections {
	c := &connections{address: base.Host, dialer: net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}}
	port := "80"
	if base.Scheme == "https" {
		port, c.tls = "443", &tls.Config{ServerName: base.Hostname(), MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	}
	if base.Port() == "" {
		c.address = net.JoinHostPort(base.Hostname(), port)
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	c.transport = &http.Transport{
		DialContext: c.take, DialTLSContext: c.take, Protocols: &protocols,
		DisableCompression: true, // the result is what the api answered, byte for byte
		IdleConnTimeout:    idle, MaxIdleConns: maxIdle, MaxIdleConnsPerHost: maxIdle, MaxResponseHeaderBytes: maxHeaderBytes,
	}
	return c
}

// claim makes sure that a connection is there for one more call, dialling where there is none. It blocks for at most
// the dial's bound. The claim is given up with release.
func (c *connections) claim(ctx context.Context) error {
	c.mu.Lock()
	c.claimed++
	enough := c.alive >= c.claimed
	if !enough {
		c.alive++ // counted while it is dialled, so that two claims do not wait for one connection
	}
	c.mu.Unlock()
	if enough {
		return nil
	}
	conn, err := c.dial(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.alive--
		c.claimed--
		return err
	}
	c.spare = append(c.spare, conn)
	return nil
}

// release gives a claim up: its call has ended, or will not be made.
func (c *connections) release() {
	c.mu.Lock()
	c.claimed--
	c.mu.Unlock()
}

// take is the transport's dial.
func (c *connections) take(ctx context.Context, _, _ string) (net.Conn, error) {
	c.mu.Lock()
	if n := len(c.spare); n > 0 {
		conn := c.spare[n-1]
		c.spare = c.spare[:n-1]
		c.mu.Unlock()
		return conn, nil
	}
	c.alive++
	c.mu.Unlock()
	conn, err := c.dial(ctx)
	if err != nil {
		c.mu.Lock()
		c.alive--
		c.mu.Unlock()
	}
	return conn, err
}

func (c *connections) dial(ctx context.Context) (net.Conn, error) {
	raw, err := c.dialer.DialContext(ctx, "tcp", c.address)
	if err != nil {
		return nil, err
	}
	counted := &countedConn{Conn: raw, owner: c}
	if c.tls == nil {
		return counted, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, errors.New("the TLS handshake took too long"))
	defer cancel()
	secure := tls.Client(counted, c.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return secure, nil
}

// close closes what is idle. Running calls keep theirs.
func (c *connections) close() {
	c.mu.Lock()
	spare := c.spare
	c.spare = nil
	c.mu.Unlock()
	for _, conn := range spare {
		_ = conn.Close() // nothing was sent on it
	}
	c.transport.CloseIdleConnections()
}

// countedConn counts what was written, so that a failed call can tell whether anything was sent at all.
type countedConn struct {
	net.Conn
	owner   *connections
	written atomic.Int64
	closed  atomic.Bool
}

// Write implements net.Conn.
func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.owner.mu.Lock()
		c.owner.alive--
		c.owner.mu.Unlock()
	}
	return c.Conn.Close()
}

// counted finds the counter below a connection of the transport.
func counted(conn net.Conn) *countedConn {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	c, _ := conn.(*countedConn)
	return c
}
