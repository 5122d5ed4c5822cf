package httpcall

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"time"
)

// An api may send bytes on a connection while no request is on it. Such bytes belong to no call. The next call would
// take them for its answer, although they answer another job. net/http looks for such bytes when a connection has
// become idle, but may give the connection to the next call before it has looked. So a connection takes a call only
// when everything that came before has been read. From then until the first byte of the request, no byte may be
// received or wait in the socket. heard.go receives and notes a byte in one step. So the check before the request's
// first byte finds each byte either in the socket or noted.
//
// A TLS record may hold nothing for the call, for example a session ticket. So a call waits until TLS has read what
// came, up to the end of a record.
//
// Bytes that come after the request's first byte cannot be distinguished from an answer. So if an api has once sent
// unasked bytes between two calls, each call gets its own connection for a while.

// errUnasked breaks a connection on which bytes came that no call had asked for.
var errUnasked = errors.New("the api sent bytes that no call had asked for")

// distrustedFor is how long each call gets its own connection after the api has sent unasked bytes.
const distrustedFor = time.Hour

// turns orders the calls on a connection. It is safe for concurrent use.
type turns struct {
	moved    chan struct{} // holds one signal: reading began, something was received, or the connection broke
	isUnread func() bool   // reports whether something is in the socket

	mu      sync.Mutex      // guards the fields below, and receiving
	of      *wire           // the call whose turn it is, nil between two calls
	over    <-chan struct{} // closed when the call ends that has the turn, or had it last
	asked   bool            // the present call may write its request, or has written it
	reading bool            // a read waits for what comes next: all that came before has been taken
	records *records        // TLS records; nil without TLS
	early   bool            // bytes came that no call had asked for; always false with TLS, which sends by itself
	broken  bool            // nothing may be written any more
	lines   int             // lines of the answer's head and of what was read with it; -1 once the head is read
}

// take gives the connection to a call. It blocks until everything that came before has been read, or the connection is
// found broken. Usually it does not have to wait. If ctx ends first, take breaks the connection.
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

// quietLocked waits until everything that has come was read, and reports whether the connection is still usable. It
// releases the lock while it waits.
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

// end ends a call's turn, unless another call has the connection by now.
func (t *turns) end(by *wire) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == by {
		t.of, t.asked = nil, false
	}
}

// read notes that the connection is about to be read. All bytes that were received before have then been taken.
func (t *turns) read() {
	t.mu.Lock()
	t.reading = true
	t.mu.Unlock()
	t.move()
}

// receivedLocked notes bytes that were received. what is empty at the connection's end.
func (t *turns) receivedLocked(what []byte) {
	t.reading = false
	if t.records != nil {
		t.records.pass(what)
	} else if !t.asked {
		t.early, t.broken = true, true
	}
	t.move()
}

// came notes the bytes that came for the present call. what is empty at the connection's end. came fails with
// errUnasked if no call had asked for the bytes when they were received, and with errLongHead if the answer's head is
// too long.
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

// endless reports whether an answer's head had too many lines. It is needed because net/http's own error depends on
// where the head was cut.
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

// isFarewell reports whether a server's unasked bytes announce that it closes an idle connection, as some servers do.
func isFarewell(sent []byte) bool {
	return len(sent) >= len("HTTP/1.x 408") && bytes.HasPrefix(sent, []byte("HTTP/1.")) && string(sent[8:12]) == " 408"
}

// isLeftOver reports whether net/http found something behind an answer after it had given the connection to the
// next call. net/http has no error of its own for that.
func isLeftOver(err error) bool {
	return strings.HasPrefix(err.Error(), "readLoopPeekFailLocked: %!w(<nil>)")
}

// distrust makes each later call use its own connection, for a while.
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

// Unasked reports whether the api has sent bytes that no call had asked for. It considers only the time since the last
// call of Unasked.
func (c *Connections) Unasked() bool { return c.unasked.Load() && c.unasked.Swap(false) }
