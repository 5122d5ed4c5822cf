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

// link is a TCP path that can be cut. Then no byte passes in either direction, and no connection is closed or refused,
// as when a cable is pulled. It is safe for concurrent use.
type link struct {
	listener net.Listener
	target   string
	named    bool // several replicas share it, and each names itself in its first request
	work     sync.WaitGroup

	mu    sync.Mutex
	open  map[string]chan struct{} // by name: closed when bytes may pass; absent: they may
	pairs []*pair
	ended bool
}

// pair is one connection through a link.
type pair struct {
	name  string // set once it was read
	conns []net.Conn
	done  chan struct{} // closed when the connection is over
}

// nameHeader is the header in which a replica names itself. The head of its request must fit in mostHead bytes.
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

// carry forwards bytes until one side ends or the link is reset.
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
		return // nothing listens there now: the other side is told
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

// join makes a connection the second half of a pair, unless the pair is over.
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

// introduce reads the first head on a connection to learn the replica's name.
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

// copy forwards bytes in one direction. It forwards the end of a connection in order with the bytes. If one half
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

// pass waits while the link is cut. It reports false if the connection is over.
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

// cut stops all bytes of a name, or of all connections if the link is not named, until heal or reset.
func (l *link) cut(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[name] == nil {
		l.open[name] = make(chan struct{})
	}
}

// heal lets all bytes pass, including those that waited.
func (l *link) heal(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if open := l.open[name]; open != nil {
		close(open)
		delete(l.open, name)
	}
}

// reset breaks the connections that were cut, and lets new ones pass. The bytes that waited are lost.
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

// drop ends a connection on both sides at once.
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

// reset closes a connection so that its other end sees it broken.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // what cannot be told is told by the close
	}
	_ = c.Close()
}

// close ends everything. It returns when nothing passes any more.
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
