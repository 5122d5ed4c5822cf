package console

import (
	"container/list"
	"errors"
	"net"
	"net/http"
	"sync"
)

// connections is a listener that bounds the open connections and the bytes of request headers. At the bound of
// connections, it closes the connection that has waited longest for a request. So clients that only hold connections
// cannot shut out a client that sends its request at once. A client that keeps a connection for its next request may
// find the connection closed. connections is safe for concurrent use.
type connections struct {
	net.Listener
	most    int   // the most open connections
	headers int64 // the most header bytes beyond usualHeaders, over all connections

	mu      sync.Mutex // guards the fields below, and those of the connections
	open    int
	waiting list.List // of *connection; the one that has waited longest comes first
	held    int64     // bytes of headers beyond usualHeaders
}

// usualHeaders is how many header bytes of each request are not counted.
const usualHeaders = 4 << 10

// errHeaders ends a connection that would take the headers of all requests beyond their bound.
var errHeaders = errors.New("the headers of all requests need more memory than is allowed")

// connection is one client's connection.
type connection struct {
	net.Conn
	of     *connections
	place  *list.Element // its place in waiting; nil while a request is being answered, and after the end
	read   int64         // bytes since the connection began to wait
	counts bool          // the bytes that are read belong to headers
	ended  bool
}

// Accept implements net.Listener. If all connections are answering requests and there is no room, it closes the new
// one.
func (c *connections) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if one := c.admit(conn); one != nil {
			return one, nil
		}
		_ = conn.Close() // no connection waits for a request, so there is no room
	}
}

// admit counts a new connection. At the bound it closes the connection that has waited longest. If no connection waits,
// admit returns nil.
func (c *connections) admit(conn net.Conn) *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open >= c.most {
		oldest := c.waiting.Front()
		if oldest == nil {
			return nil
		}
		one := oldest.Value.(*connection)
		c.forget(one)
		_ = one.Conn.Close()
	}
	c.open++
	one := &connection{Conn: conn, of: c}
	c.wait(one)
	return one
}

// state tracks the state that net/http reports for a connection.
func (c *connections) state(conn net.Conn, state http.ConnState) {
	one, ok := conn.(*connection)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case one.ended:
	case state == http.StateActive: // its headers have been read and stay in memory until the answer
		c.leave(one)
		one.counts = false
	case state == http.StateIdle:
		c.release(one)
		c.wait(one)
	}
}

// wait puts a connection at the end of the waiting ones. wait, leave, release and forget require mu.
func (c *connections) wait(one *connection) {
	c.leave(one)
	one.counts, one.place = true, c.waiting.PushBack(one)
}

func (c *connections) leave(one *connection) {
	if one.place != nil {
		c.waiting.Remove(one.place)
		one.place = nil
	}
}

func (c *connections) release(one *connection) {
	c.held -= max(0, one.read-usualHeaders)
	one.read = 0
}

func (c *connections) forget(one *connection) {
	if one.ended {
		return
	}
	one.ended = true
	c.open--
	c.leave(one)
	c.release(one)
}

// Read implements net.Conn.
func (o *connection) Read(into []byte) (int, error) {
	n, err := o.Conn.Read(into)
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	if n > 0 && o.counts && !o.ended {
		before := max(0, o.read-usualHeaders)
		o.read += int64(n)
		o.of.held += max(0, o.read-usualHeaders) - before
		if o.of.held > o.of.headers {
			return 0, errHeaders
		}
	}
	return n, err
}

// Close implements net.Conn.
func (o *connection) Close() error {
	o.of.mu.Lock()
	o.of.forget(o)
	o.of.mu.Unlock()
	return o.Conn.Close()
}

// CloseWrite lets net/http finish an answer before the whole request has arrived. Without CloseWrite net/http would
// reset the connection, and the reset could overtake the answer.
func (o *connection) CloseWrite() error {
	half, ok := o.Conn.(interface{ CloseWrite() error })
	if !ok {
		return nil
	}
	return half.CloseWrite()
}
