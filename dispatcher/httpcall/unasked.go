package httpcall

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"
)

// What an api sends on a connection while no request is on it belongs to no call, and the next call would take it for its answer: the
// answer to somebody else's job. net/http looks for it when a connection has become idle, but not before it has given the connection to
// the next call. So a connection that has carried a call takes the next one only when all that came before has been read, and from then on
// to the first byte of the request nothing may come: neither what was read nor what stands in the socket.
//
// What comes after that byte cannot be told from an answer. So an api that has once sent what nobody asked for between two calls is given a
// connection for each call, for a while.

// errUnasked breaks a connection on which something came that no call had asked for.
var errUnasked = errors.New("the api sent what no call had asked for")

// distrustedFor is how long each call has a connection of its own after that.
const distrustedFor = time.Hour

// turns are how calls follow each other on a connection. They are safe for concurrent use.
type turns struct {
	moved chan struct{} // holds one: reading has begun, or the connection broke

	mu      sync.Mutex // guards what follows
	of      *wire      // whose turn it is, nil between two calls
	carried bool       // a request has been on it before
	asked   bool       // the first byte of the present call's request was handed to it
	reading bool       // what comes next is waited for: all that came before has been taken
	broken  bool       // nothing may be written any more
	lines   int        // of the answer's head, and of what was read with it; -1 when the head has been read
}

// take gives the connection to a call. On one that has carried another it blocks until what belongs to that has been read, which is at
// once, or the connection is found broken; or until ctx ends, which breaks it.
func (t *turns) take(ctx context.Context, by *wire) {
	t.mu.Lock()
	t.of, t.asked, t.lines = by, false, 0
	for t.carried && !t.reading && !t.broken {
		t.mu.Unlock()
		select {
		case <-t.moved:
			t.mu.Lock()
		case <-ctx.Done():
			t.mu.Lock()
			t.broken = true
		}
	}
	t.mu.Unlock()
}

// ask reports whether the present call's request may be written.
func (t *turns) ask() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken {
		return false
	}
	t.carried, t.asked = true, true
	return true
}

// end ends a call's turn, unless the connection is another call's by now.
func (t *turns) end(by *wire) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == by {
		t.of, t.asked = nil, false
	}
}

// read notes that what comes next is waited for.
func (t *turns) read() {
	t.mu.Lock()
	t.reading = true
	t.mu.Unlock()
	t.move()
}

// came notes what came, the connection's end perhaps. It fails where no call has asked for it, and where an answer's head has no end.
func (t *turns) came(what []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reading = false
	if !t.asked {
		t.broken = true
		return errUnasked
	}
	if t.lines >= 0 {
		if t.lines += bytes.Count(what, []byte{'\n'}); t.lines > maxHeadLines {
			return errLongHead
		}
	}
	return nil
}

// headed notes that the answer's head has been read.
func (t *turns) headed() {
	t.mu.Lock()
	t.lines = -1
	t.mu.Unlock()
}

// endless reports whether an answer's head had more lines than are read. What net/http makes of it depends on where it was cut.
func (t *turns) endless() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lines > maxHeadLines
}

// breaks notes that the connection is closed.
func (t *turns) breaks() {
	t.mu.Lock()
	t.broken = true
	t.mu.Unlock()
	t.move()
}

func (t *turns) move() {
	select {
	case t.moved <- struct{}{}:
	default:
	}
}

// socketOf is what a connection reads from, nil where that is no socket.
func socketOf(conn net.Conn) syscall.RawConn {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if of, ok := conn.(syscall.Conn); ok {
		if socket, err := of.SyscallConn(); err == nil {
			return socket
		}
	}
	return nil
}

// isSpokenTo reports whether something stands in the connection's socket that nobody has read: on a busy machine whoever reads is late, by
// milliseconds. What TLS says after its handshake counts for nothing.
func (c *countedConn) isSpokenTo() bool {
	carried := c.written.Load() > 0
	return c.socket != nil && (carried || !c.owner.tls) && isUnread(c.socket)
}

// isFarewell reports whether a server says with what it sent that it closes an idle connection, as some do.
func isFarewell(sent []byte) bool {
	return len(sent) >= len("HTTP/1.x 408") && bytes.HasPrefix(sent, []byte("HTTP/1.")) && string(sent[8:12]) == " 408"
}

// isLeftOver reports whether net/http has found something behind an answer when it had given the connection to the next call already. It has no
// error of its own for that.
func isLeftOver(err error) bool {
	return strings.HasPrefix(err.Error(), "readLoopPeekFailLocked: %!w(<nil>)")
}

// distrust gives each call to come a connection of its own, for a while.
func (c *Connections) distrust() {
	c.unasked.Store(true)
	c.distrusted.Store(time.Now().Add(distrustedFor).UnixNano())
	c.transport.CloseIdleConnections()
}

// trusts reports whether a connection may carry more than one call.
func (c *Connections) trusts() bool {
	until := c.distrusted.Load()
	return until == 0 || time.Now().UnixNano() >= until
}

// Unasked reports whether the api has sent what no call had asked for, since it was asked last.
func (c *Connections) Unasked() bool { return c.unasked.Load() && c.unasked.Swap(false) }
