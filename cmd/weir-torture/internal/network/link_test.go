package network

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"weir/cmd/weir-torture/internal/plan"
	"weir/ingest/await"
)

// echo starts a server that answers every line with the same line.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); _ = conn.Close() }()
		}
	}()
	return listener.Addr().String()
}

// caller is one connection through a link.
type caller struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func dialLink(t *testing.T, l *Link) *caller {
	t.Helper()
	conn, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &caller{t, conn, bufio.NewReader(conn)}
}

func (c *caller) say(line string) {
	c.t.Helper()
	if _, err := c.conn.Write([]byte(line + "\n")); err != nil {
		c.t.Fatal(err)
	}
}

// hears expects this line.
func (c *caller) hears(line string) {
	c.t.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(await.Patience))
	if got, err := c.in.ReadString('\n'); err != nil || got != line+"\n" {
		c.t.Errorf("heard %q, %v, and not %q", got, err, line)
	}
}

// hearsNothing expects that no line comes and the connection stays open.
func (c *caller) hearsNothing() {
	c.t.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if got, err := c.in.ReadString('\n'); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("heard %q, %v from a link that is cut", got, err)
	}
}

// breaks expects that the connection breaks.
func (c *caller) breaks() {
	c.t.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(await.Patience))
	if got, err := c.in.ReadString('\n'); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("heard %q, %v, and the connection did not break", got, err)
	}
}

// TestLink checks that nothing passes and nothing is closed while a link is cut. Afterwards the held bytes arrive, or
// are lost with their connections.
func TestLink(t *testing.T) {
	l, err := NewLink(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	old := dialLink(t, l)
	old.say("before")
	old.hears("before")
	l.Cut("")
	young := dialLink(t, l)
	for _, c := range []*caller{old, young} {
		c.say("during")
		c.hearsNothing()
	}
	l.Heal("")
	old.hears("during")
	young.hears("during")

	l.Cut("")
	old.say("lost")
	old.hearsNothing()
	l.Reset("")
	old.breaks()
	young.breaks()
	dialLink(t, l).say("after")
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestNamedLink checks that one of several replicas that share a link can be cut off alone.
func TestNamedLink(t *testing.T) {
	l, err := NewNamedLink(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	call := func(name string) *caller {
		c := dialLink(t, l)
		c.say("POST / HTTP/1.1\r\n" + plan.NameHeader + ": " + name + "\r\n\r")
		return c
	}
	hears := func(c *caller, name string) {
		t.Helper()
		for _, line := range []string{"POST / HTTP/1.1\r", plan.NameHeader + ": " + name + "\r", "\r"} {
			c.hears(line)
		}
	}
	one, two := call("one"), call("two")
	hears(one, "one")
	hears(two, "two")
	l.Cut("one")
	one.say("held")
	one.hearsNothing()
	call("one").hearsNothing()
	two.say("free")
	two.hears("free")
	l.Reset("one")
	one.breaks()
	two.say("still")
	two.hears("still")
	hears(call("one"), "one")
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
