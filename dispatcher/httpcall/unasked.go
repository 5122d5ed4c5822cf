package httpcall

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"time"
)

// What an api sends on a connection while no request is on it belongs to no call, and the next call would take it for its answer: the
// answer to somebody else's job. net/http looks for it when a connection has become idle, but not before it has given the connection to
// the next call. So a connection takes a call only when all that came before has been read, and from then on to the first byte of the
// request nothing may come: neither what was received nor what stands in the socket. What is received is noted in one step with receiving
// it (heard.go): the look before the first byte finds it in the one place or in the other.
//
// Above TLS a record may hold nothing for the call, such as a ticket. So a call waits until TLS has taken what came, in whole records.
//
// What comes after that byte cannot be told from an answer. So an api that has once sent what nobody asked for between two calls is given a
// connection for each call, for a while.

// errUnasked breaks a connection on which something came that no call had asked for.
var errUnasked = errors.New("the api sent what no call had asked for")

// distrustedFor is how long each call has a connection of its own after that.
const distrustedFor = time.Hour

// turns are how calls follow each other on a connection. They are safe for concurrent use.
type turns struct {
	moved    chan struct{} // holds one: reading has begun, something was received, or the connection broke
	isUnread func() bool   // reports whether something stands in the socket

	mu      sync.Mutex      // guards what follows, and receiving
	of      *wire           // whose turn it is, nil between two calls
	over    <-chan struct{} // closed when the call ends that has or had the turn
	asked   bool            // the first byte of the present call's request was handed to it
	reading bool            // what comes next is waited for: all that came before has been taken
	records *records        // of TLS; nil without
	early   bool            // something was received that no call had asked for; always false with TLS, which may speak for itself
	broken  bool            // nothing may be written any more
	lines   int             // of the answer's head, and of what was read with it; -1 when the head has been read
}

// take gives the connection to a call. It blocks until what came before has been read, which is at once, or the connection is found broken;
// or until ctx ends, which breaks it.
func (t *turns) take(ctx context.Context, by *wire) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of, t.over, t.asked, t.lines = by, ctx.Done(), false, 0
	t.quietLocked()
}

// ask reports whether a call's request may be written. It blocks as take does.
func (t *turns) ask(by *wire) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked = t.quietLocked() && t.of == by
	return t.asked
}

// quietLocked waits until all that has come was taken, and reports whether that belonged to no call. It lets go of the lock while it waits.
func (t *turns) quietLocked() bool {
	for !t.broken && (!t.reading || t.records != nil && t.records.torn() || t.isUnread()) {
		over := t.over
		t.mu.Unlock()
		select {
		case <-t.moved:
			t.mu.Lock()
		case <-over:
			t.mu.Lock()
			t.broken = true
		}
	}
	return !t.broken
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

// receivedLocked notes what was received, the connection's end perhaps.
func (t *turns) receivedLocked(what []byte) {
	t.reading = false
	if t.records != nil {
		t.records.pass(what)
	} else if !t.asked {
		t.early, t.broken = true, true
	}
	t.move()
}

// came notes what came for the present call, the connection's end perhaps. It fails where no call had asked for it when it was received, and
// where an answer's head has no end.
func (t *turns) came(what []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.early || t.records != nil && !t.asked {
		t.broken = true
		t.move()
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
	return hearsAtOnce && (until == 0 || time.Now().UnixNano() >= until)
}

// Unasked reports whether the api has sent what no call had asked for, since it was asked last.
func (c *Connections) Unasked() bool { return c.unasked.Load() && c.unasked.Swap(false) }
