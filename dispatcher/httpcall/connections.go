package httpcall

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Connections holds the open connections to one api. A job acquires a connection before it asks for a slot. So a slow
// dial or TLS handshake delays no call beyond its slot: in the slot, only the request is left to send.
//
// Connections use only HTTP/1.1, in which a connection carries one call at a time. So it is certain what was sent, and
// no library sends a call again by itself.
type Connections struct {
	transport *http.Transport
	address   string
	host      string
	tls       bool
	trust     Trust        // how an https api is trusted
	expires   atomic.Int64 // see Expires
	dialer    net.Dialer

	unasked    atomic.Bool  // see Unasked
	distrusted atomic.Int64 // until then each call gets its own connection; in ns since 1970

	mu       sync.Mutex // guards the fields below
	spare    []spare    // dialled ahead for the transport, oldest first
	alive    int        // number of open connections
	acquired int        // number of connections acquired for calls that run or will run
}

// spare is a connection that was dialled ahead. Nothing reads from it, so a close by the server goes unnoticed.
type spare struct {
	*countedConn
	since time.Time
}

// Bounds of connecting. If the server closes an idle connection at the moment of a call, that call's outcome is
// unknown. Many servers close idle connections after 5 s. So connections to an api that must not be called twice are
// kept idle only briefly. Spare connections are never kept longer than maxSpare.
const (
	maxSpare         = 2 * time.Second
	dialTimeout      = 10 * time.Second
	idleIdempotent   = 30 * time.Second
	idleUnrepeatable = 2 * time.Second
)

// Bounds of an answer's head. A line of few bytes takes some hundred bytes in memory, and every running call may have a
// head. maxHeadLines also counts the lines in the part of the body that is read with the head, which is at most 4 KiB.
const (
	maxHeadBytes = 128 << 10
	maxHeadLines = 4<<10 + 1<<10
)

// NewConnections returns Connections to the host of base. At most maxIdle of them are idle, each for at most the
// duration idle.
func NewConnections(base *url.URL, trust Trust, idle time.Duration, maxIdle int) *Connections {
	c := &Connections{address: base.Host, host: base.Hostname(), trust: trust, dialer: net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}}
	port := "80"
	if base.Scheme == "https" {
		port, c.tls = "443", true
	}
	if base.Port() == "" {
		c.address = net.JoinHostPort(base.Hostname(), port)
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	c.transport = &http.Transport{
		DialContext: c.take, DialTLSContext: c.take, Protocols: &protocols,
		DisableCompression: true, // the result is what the api answered, byte for byte
		IdleConnTimeout:    idle, MaxIdleConns: maxIdle, MaxIdleConnsPerHost: maxIdle, MaxResponseHeaderBytes: maxHeadBytes, ReadBufferSize: 4 << 10,
	}
	return c
}

// Acquire makes sure that there is a connection for one more call, and dials if there is none. It blocks for at most
// dialTimeout to connect, and for at most dialTimeout more for TLS. Release gives the connection up.
func (c *Connections) Acquire(ctx context.Context) error {
	c.mu.Lock()
	c.acquired++
	c.mu.Unlock()
	err := c.Replace(ctx)
	if err != nil {
		c.Release()
	}
	return err
}

// Replace dials if an acquired connection is gone. It blocks for as long as Acquire may. If it fails, the caller must
// still call Release.
func (c *Connections) Replace(ctx context.Context) error {
	c.dropStale()
	c.mu.Lock()
	enough := c.alive >= c.acquired
	if !enough {
		c.alive++ // counted while it is dialled, so that two calls do not wait for one connection
	}
	c.mu.Unlock()
	if enough {
		return nil
	}
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.spare = append(c.spare, spare{conn, time.Now()})
	c.mu.Unlock()
	return nil
}

// Release gives up an acquired connection: its call has ended, or will not be made.
func (c *Connections) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.acquired--; c.acquired < 0 {
		panic("httpcall: a connection was released that was not acquired")
	}
}

// dropStale closes spare connections that are so old that the server may have closed them.
func (c *Connections) dropStale() {
	c.mu.Lock()
	n := 0
	for n < len(c.spare) && time.Since(c.spare[n].since) > maxSpare {
		n++
	}
	stale := slices.Clone(c.spare[:n])
	c.spare = slices.Delete(c.spare, 0, n)
	c.mu.Unlock()
	for _, conn := range stale {
		_ = conn.Close() // nothing was sent on it
	}
}

// take is the transport's dial function. It returns a spare connection, or dials.
func (c *Connections) take(ctx context.Context, _, _ string) (net.Conn, error) {
	c.dropStale()
	c.mu.Lock()
	if n := len(c.spare); n > 0 {
		conn := c.spare[n-1]
		c.spare = c.spare[:n-1]
		c.mu.Unlock()
		return conn.countedConn, nil
	}
	c.alive++
	c.mu.Unlock()
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err // not a nil *countedConn in an interface
	}
	return conn, nil
}

// dial makes a connection that is already counted in alive. If it fails, it takes the connection out of that count.
func (c *Connections) dial(ctx context.Context) (*countedConn, error) {
	conn, turns, err := c.connect(ctx)
	if err != nil {
		c.lost()
		return nil, err
	}
	return &countedConn{Conn: conn, owner: c, turns: turns}, nil
}

func (c *Connections) connect(ctx context.Context) (net.Conn, *turns, error) {
	socket, err := c.dialer.DialContext(ctx, "tcp", c.address)
	if err != nil {
		return nil, nil, err
	}
	raw := newHeardConn(socket, c.tls)
	if !c.tls {
		return raw, raw.turns, nil
	}
	settings, err := c.trust.settings(c.host, time.Now())
	if err != nil {
		_ = raw.Close() // nothing was sent on it
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, errors.New("the TLS handshake took too long"))
	defer cancel()
	secure := tls.Client(raw, settings)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = raw.Close() // the handshake's error says more
		return nil, nil, err
	}
	c.expires.Store(earliestEnd(secure.ConnectionState().PeerCertificates, settings.Certificates).Unix())
	return secure, raw.turns, nil
}

// Probe opens a connection, with its TLS handshake, and closes it. It sends nothing else. It blocks at most until ctx
// ends.
func (c *Connections) Probe(ctx context.Context) error {
	conn, _, err := c.connect(ctx)
	if err == nil {
		_ = conn.Close() // it was opened, which is what Probe tests
	}
	return err
}

// lost takes a connection out of the count of open connections.
func (c *Connections) lost() {
	c.mu.Lock()
	c.alive--
	c.mu.Unlock()
}

// Close closes idle connections. Running calls keep their connections.
func (c *Connections) Close() {
	c.mu.Lock()
	unused := c.spare
	c.spare = nil
	c.mu.Unlock()
	for _, conn := range unused {
		_ = conn.Close() // nothing was sent on it
	}
	c.transport.CloseIdleConnections()
}

// countedConn counts the bytes that were written, so that a failed call can tell whether anything was sent. It is above
// TLS: what TLS sends by itself belongs to no call, and a part of a TLS record tells the server nothing.
type countedConn struct {
	net.Conn
	owner   *Connections
	written atomic.Int64
	read    atomic.Bool           // anything was read
	refused atomic.Pointer[error] // why the server did not take the handshake after all
	shut    atomic.Bool           // nothing may be written any more
	closed  atomic.Bool
	call    atomic.Pointer[wire] // the call that is about to write its first byte; nil once the byte is written
	turns   *turns
}

var errShut = errors.New("the connection broke before the answer")

// Write implements net.Conn.
func (c *countedConn) Write(p []byte) (int, error) {
	if c.shut.Load() {
		return 0, errShut
	}
	first := c.call.Load()
	if first != nil && !first.begin(c) {
		return 0, errShut
	}
	c.written.Add(int64(len(p))) // counted before the write: the answer may be here before Write returns
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n - len(p)))
	if first != nil && n > 0 {
		if c.call.CompareAndSwap(first, nil); first.left != nil {
			first.left()
		}
	}
	return n, err
}

// Read implements net.Conn.
func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && !c.read.Load() && n == 0 && refusesCertificate(err) {
		c.refused.Store(&err) // stored before a write can fail because of it
	}
	if no := c.turns.came(p[:n]); no != nil && n > 0 {
		if errors.Is(no, errUnasked) && c.written.Load() > 0 && !isFarewell(p[:n]) {
			c.owner.distrust()
		}
		return 0, no
	}
	if n > 0 {
		c.read.Store(true)
	}
	return n, err
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.owner.lost()
	}
	c.turns.breaks()
	return c.Conn.Close()
}
