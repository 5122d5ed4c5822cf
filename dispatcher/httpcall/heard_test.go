package httpcall

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"weir/ingest"
	"weir/ingest/await"
)

// pausedConn stops its reader, once it is armed, between receiving bytes and noting them.
type pausedConn struct {
	net.Conn
	armed  atomic.Bool
	inGap  chan struct{}
	goesOn chan struct{}
}

// Read implements net.Conn.
func (c *pausedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.armed.CompareAndSwap(true, false) {
		close(c.inGap)
		select {
		case <-c.goesOn:
		case <-time.After(await.Patience): // the test has failed by then
		}
	}
	return n, err
}

// TestReceivedAndUntoldIsNoAnswer checks that bytes that came before a call's first byte are no answer to it,
// even if the reader has received them, so that they are not in the socket any more, and has not noted them yet.
func TestReceivedAndUntoldIsNoAnswer(t *testing.T) {
	trusted := httptest.NewTLSServer(nil)
	defer trusted.Close()
	for scheme, wrap := range map[string]func(net.Listener) net.Listener{
		"http":  overTCP,
		"https": func(l net.Listener) net.Listener { return tls.NewListener(l, trusted.TLS) },
	} {
		t.Run(scheme, func(t *testing.T) {
			speak := make(chan net.Conn, 1)
			server := newRawServer(t, wrap, func(conn net.Conn, n int) {
				say(conn, answerOK)
				if n == 1 {
					speak <- conn
				}
			})
			c := callerOf(t, scheme+"://"+server.listener.Addr().String())
			roots := x509.NewCertPool()
			roots.AddCert(trusted.Certificate())
			c.Conns.trust.Load = func() (*tls.Config, error) {
				return &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12}, nil
			}
			paused := &pausedConn{inGap: make(chan struct{}), goesOn: make(chan struct{})}
			call := func(begins func() bool) Response {
				return c.Call(t.Context(), &ingest.Job{Method: "POST", Body: []byte("pay")}, Hooks{Begins: begins})
			}
			claimAll(t, c, 1)
			spare := c.Conns.spare[0].countedConn
			paused.Conn, spare.Conn = spare.Conn, paused
			if r := call(nil); r.Status != 200 {
				t.Fatalf("the first call: %+v", r)
			}
			conn := await.Receive(t, "the first request", speak)
			if scheme == "https" {
				// The call waits for the reader: only the reader can tell whether the answer was sent to this call.
				c.API.Timeout = 50 * time.Millisecond
			}
			r := call(func() bool {
				paused.armed.Store(true)
				say(conn, answerWrong)
				await.Return(t, "the reader in the gap", func() { <-paused.inGap })
				return true
			})
			close(paused.goesOn)
			if n := len(server.seen()); r.Sent || r.Status != 0 || n != 1 {
				t.Errorf("%d requests, and a call into what had come before it: %+v", n, r)
			}
		})
	}
}

// TestTornRecord checks that a call waits for the rest of a TLS record that has come in part before the call's
// first byte, at most until the call is over.
func TestTornRecord(t *testing.T) {
	ticket := []byte{23, 3, 3, 0, 2, 'o', 'k'}
	for cut := range len(ticket) + 1 {
		c := &turns{moved: make(chan struct{}, 1), isUnread: func() bool { return false }, records: &records{}}
		ctx, cancel := context.WithCancel(t.Context())
		by := &wire{}
		c.read()
		c.take(ctx, by)
		received := func(what []byte) {
			c.mu.Lock()
			c.receivedLocked(what)
			c.mu.Unlock()
			c.read()
		}
		received(ticket)
		received(ticket[:cut])
		torn := cut > 0 && cut < len(ticket)
		if torn {
			cancel()
		}
		if asked := c.ask(by); asked == torn {
			t.Errorf("%d of %d bytes of a record have come: asked %v", cut, len(ticket), asked)
		}
		cancel()
	}
}
