// Package network has the connections that the torture disturbs: links that are cut as a cable is pulled, and a proxy
// that makes connections slow or breaks them.
package network

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"

	"weir/cmd/weir-torture/internal/plan"
)

// Link is a TCP path that can be cut. While it is cut, no byte passes in either direction, and no connection is closed
// or refused, as if a cable were pulled. It is safe for concurrent use.
type Link struct {
	listener net.Listener
	Target   string
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

// mostHead bounds the head of a replica's request, in bytes.
const mostHead = 8 << 10

// NewLink listens on a free port and forwards to target.
func NewLink(target string) (*Link, error) { return openLink(&Link{Target: target}) }

// NewNamedLink is NewLink for a link that several replicas share. Each names itself in its first request.
func NewNamedLink(target string) (*Link, error) { return openLink(&Link{Target: target, named: true}) }

func openLink(l *Link) (*Link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("a link to %s: %w", l.Target, err)
	}
	l.listener, l.open = listener, map[string]chan struct{}{}
	l.work.Go(l.accept)
	return l, nil
}

// Addr returns the address that the link listens on.
func (l *Link) Addr() string { return l.listener.Addr().String() }

func (l *Link) accept() {
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
func (l *Link) carry(p *pair, from net.Conn) {
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
	to, err := net.Dial("tcp", l.Target)
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
func (l *Link) join(p *pair, to net.Conn) bool {
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
func (l *Link) introduce(p *pair, from net.Conn) (head []byte, ok bool) {
	for buf := make([]byte, mostHead); len(head) < mostHead; {
		n, err := from.Read(buf)
		head = append(head, buf[:n]...)
		if _, after, found := bytes.Cut(head, []byte("\r\n"+plan.NameHeader+": ")); found {
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
func (l *Link) copy(p *pair, to, from net.Conn) {
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
func (l *Link) pass(p *pair) bool {
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

// Cut stops all bytes of the named replica until heal or reset. For a link without names, name is "".
func (l *Link) Cut(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[name] == nil {
		l.open[name] = make(chan struct{})
	}
}

// Heal lets all bytes pass, including those that were held up.
func (l *Link) Heal(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if open := l.open[name]; open != nil {
		close(open)
		delete(l.open, name)
	}
}

// Reset breaks the connections that were cut, and lets new ones pass. The bytes that were held up are lost.
func (l *Link) Reset(name string) {
	l.mu.Lock()
	cut := slices.Clone(l.pairs)
	l.mu.Unlock()
	for _, p := range cut {
		if l.nameOf(p) == name {
			l.drop(p)
		}
	}
	l.Heal(name)
}

func (l *Link) nameOf(p *pair) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return p.name
}

// drop breaks both sides of a connection.
func (l *Link) drop(p *pair) {
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

// Close breaks all connections and waits until none passes bytes.
func (l *Link) Close() error {
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
		return fmt.Errorf("close the link to %s: %w", l.Target, err)
	}
	return nil
}
