package torture

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
)

// link is a TCP path that can be cut. While it is cut, no byte passes in either direction, and no connection is closed
// or refused, as if a cable were pulled. It is safe for concurrent use.
type link struct {
	listener net.Listener
	target   string
	named    bool // several replicas share the link, and each names itself in its first request
	work     sync.WaitGroup

	mu    sync.Mutex
	open  map[string]chan struct{} // by name: closed when bytes may pass again; absent: the link is not cut
	pairs []*pair
	ended bool
}

// pair is one connection through a link.
type pair struct {
	name  string // of the replica; set when it was read
	conns []net.Conn
	done  chan struct{} // closed when the connection is over
}

// nameHeader is the header in which a replica names itself. mostHead bounds the head of its request, in bytes.
const (
	nameHeader = "X-Replica"
	mostHead   = 8 << 10
)

// newLink listens on a free port and forwards to target.
func newLink(target string) (*link, error) { return openLink(&link{target: target}) }

func newNamedLink(target string) (*link, error) { return openLink(&link{target: target, named: true}) }

func openLink(l *link) (*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("a link to %s: %w", l.target, err)
	}
	l.listener, l.open = listener, map[string]chan struct{}{}
	l.work.Go(l.accept)
	return l, nil
}

func (l *link) addr() string { return l.listener.Addr().String() }

func (l *link) accept() {
	for {
		conn, err := l.listener.Accept()
		if err != nil {
			return // closed
		}
		p := &pair{conns: []net.Conn{conn}, done: make(chan struct{})}
		l.mu.Lock()
		if l.ended {
			l.mu.Unlock()
			reset(conn)
			return
		}
		l.pairs = append(l.pairs, p)
		l.work.Go(func() { l.carry(p, conn) })
		l.mu.Unlock()
	}
}

// carry forwards a connection's bytes until one side ends or the link is reset.
func (l *link) carry(p *pair, from net.Conn) {
	defer l.drop(p)
	var head []byte
	if l.named {
		var ok bool
		if head, ok = l.introduce(p, from); !ok {
			return
		}
	}
	if !l.pass(p) {
		return
	}
	to, err := net.Dial("tcp", l.target)
	if err != nil {
		return // nothing listens there: the caller resets the other side
	}
	if !l.join(p, to) {
		return
	}
	if _, err := to.Write(head); err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { l.copy(p, from, to) })
	l.copy(p, to, from)
	back.Wait()
}

// join makes a connection the second half of a pair. It returns false if the pair is over.
func (l *link) join(p *pair, to net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-p.done:
		reset(to)
		return false
	default:
		p.conns = append(p.conns, to)
		return true
	}
}

// introduce reads a connection's first request head, to learn the replica's name. It returns the bytes read.
func (l *link) introduce(p *pair, from net.Conn) (head []byte, ok bool) {
	for buf := make([]byte, mostHead); len(head) < mostHead; {
		n, err := from.Read(buf)
		head = append(head, buf[:n]...)
		if _, after, found := bytes.Cut(head, []byte("\r\n"+nameHeader+": ")); found {
			if name, _, whole := bytes.Cut(after, []byte("\r\n")); whole {
				l.mu.Lock()
				p.name = string(name)
				l.mu.Unlock()
				return head, true
			}
		}
		if err != nil {
			return nil, false
		}
	}
	return nil, false
}

// copy forwards bytes in one direction. After all bytes it also passes on an orderly end of the connection. If one half
// breaks, it breaks the other half.
func (l *link) copy(p *pair, to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if !l.pass(p) {
			return
		}
		_, wrong := to.Write(buf[:n])
		switch half, ok := to.(*net.TCPConn); {
		case wrong == nil && err == nil:
			continue
		case wrong == nil && errors.Is(err, io.EOF) && ok && half.CloseWrite() == nil:
			return
		}
		l.drop(p)
		return
	}
}

// pass waits while the link is cut. It returns false if the connection is over.
func (l *link) pass(p *pair) bool {
	l.mu.Lock()
	open := l.open[p.name]
	l.mu.Unlock()
	if open == nil {
		return true
	}
	select {
	case <-open:
		return true
	case <-p.done:
		return false
	}
}

// cut stops all bytes of the named replica until heal or reset. For a link without names, name is "".
func (l *link) cut(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[name] == nil {
		l.open[name] = make(chan struct{})
	}
}

// heal lets all bytes pass, including those that were held up.
func (l *link) heal(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if open := l.open[name]; open != nil {
		close(open)
		delete(l.open, name)
	}
}

// reset breaks the connections that were cut, and lets new ones pass. The bytes that were held up are lost.
func (l *link) reset(name string) {
	l.mu.Lock()
	cut := slices.Clone(l.pairs)
	l.mu.Unlock()
	for _, p := range cut {
		if l.nameOf(p) == name {
			l.drop(p)
		}
	}
	l.heal(name)
}

func (l *link) nameOf(p *pair) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return p.name
}

// drop breaks both sides of a connection.
func (l *link) drop(p *pair) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.pairs, p); i >= 0 {
		l.pairs = slices.Delete(l.pairs, i, i+1)
		close(p.done)
	}
	for _, c := range p.conns {
		reset(c)
	}
}

// reset closes a connection so that the other end sees it broken.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // if it fails, Close still ends the connection
	}
	_ = c.Close()
}

// close breaks all connections and waits until none passes bytes.
func (l *link) close() error {
	l.mu.Lock()
	l.ended = true
	left := slices.Clone(l.pairs)
	l.mu.Unlock()
	err := l.listener.Close()
	for _, p := range left {
		l.drop(p)
	}
	l.work.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close the link to %s: %w", l.target, err)
	}
	return nil
}
