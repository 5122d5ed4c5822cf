package httpcall

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/ingest"
	"weir/ingest/await"

	"go.uber.org/goleak"
)

// counts are what connections know: open ones, claims, and spare ones.
type counts struct{ alive, claimed, spare int }

func (c *Connections) counts() counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return counts{c.alive, c.acquired, len(c.spare)}
}

// TestConnectionsAreCounted goes through the ways in which a connection comes and goes, and compares the counts
// with what the server sees.
func TestConnectionsAreCounted(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ok := func(conn net.Conn, _ int) { say(conn, answerOK) }
	post := &ingest.Job{Method: "POST", Body: []byte("pay")}
	for _, c := range []struct {
		what   string
		answer func(net.Conn, int)
		do     func(t *testing.T, s *rawServer, c *Client)
		want   counts
	}{
		{"one call", ok, func(t *testing.T, _ *rawServer, c *Client) { c.claimed(t, post) }, counts{alive: 1}},
		{"calls after another", ok, func(t *testing.T, s *rawServer, c *Client) {
			for range 50 {
				c.claimed(t, post)
			}
			if _, ever := s.conns(); ever != 1 {
				t.Errorf("%d connections for calls one after another", ever)
			}
		}, counts{alive: 1}},
		{"calls at once", ok, func(t *testing.T, s *rawServer, c *Client) {
			var calls sync.WaitGroup
			for range 40 {
				calls.Go(func() { c.claimed(t, post) })
			}
			await.Return(t, "all calls", calls.Wait)
			if _, ever := s.conns(); ever > 40 {
				t.Errorf("%d connections for 40 calls at once", ever)
			}
			c.Conns.Close()
		}, counts{}},
		{"claimed and not called", ok, func(t *testing.T, _ *rawServer, c *Client) { claimAll(t, c, 3) }, counts{alive: 3, spare: 3}},
		{
			"closed after each answer", func(conn net.Conn, _ int) {
				say(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
			},
			func(t *testing.T, _ *rawServer, c *Client) { c.claimed(t, post); c.claimed(t, post) },
			counts{},
		},
		{"closed while idle", ok, func(t *testing.T, s *rawServer, c *Client) { c.claimed(t, post); s.closeConns() }, counts{}},
		{"reset", func(conn net.Conn, _ int) { _ = conn.Close() }, func(t *testing.T, _ *rawServer, c *Client) { c.claimed(t, post) }, counts{}},
		{"timed out", func(net.Conn, int) {}, func(t *testing.T, _ *rawServer, c *Client) {
			c.API.Timeout = 20 * time.Millisecond
			// On a busy machine the timeout may pass before the call begins.
			for tries := 0; tries < 20 && !c.claimed(t, post).Sent; tries++ {
			}
		}, counts{}},
		{"refused", ok, func(t *testing.T, s *rawServer, c *Client) {
			_ = s.listener.Close()
			if err := c.Conns.Acquire(t.Context()); err == nil {
				t.Error("connected to nobody")
			}
			if r := c.Call(t.Context(), post, Hooks{}); r.Sent || r.Err == nil {
				t.Errorf("called nobody: %+v", r)
			}
		}, counts{}},
		{"stopped while dialling", ok, func(t *testing.T, _ *rawServer, c *Client) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := c.Conns.Acquire(ctx); err == nil {
				t.Error("connected after the stop")
			}
		}, counts{}},
	} {
		t.Run(c.what, func(t *testing.T) {
			server := newRawServer(t, overTCP, c.answer)
			caller := callerOf(t, "http://"+server.listener.Addr().String())
			c.do(t, server, caller)
			await.Until(t, "the right counts", func() bool { return caller.Conns.counts() == c.want })
			await.Until(t, "as many connections at the server", func() bool { now, _ := server.conns(); return now == c.want.alive })
		})
	}
}

func claimAll(t *testing.T, c *Client, n int) {
	t.Helper()
	for range n {
		if err := c.Conns.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for range n {
		c.Conns.Release()
	}
}

// TestNoSpareIsStale checks that a connection that was dialled ahead is not used once the server may have closed
// it. Nothing reads from it, so the close would go unnoticed, and the call's outcome would be unknown.
func TestNoSpareIsStale(t *testing.T) {
	server := newRawServer(t, overTCP, func(conn net.Conn, _ int) { say(conn, answerOK) })
	c := callerOf(t, "http://"+server.listener.Addr().String())
	claimAll(t, c, 3)
	await.Until(t, "three connections at the server", func() bool { now, _ := server.conns(); return now == 3 })
	server.closeConns()
	c.Conns.mu.Lock()
	for i := range c.Conns.spare {
		c.Conns.spare[i].since = time.Now().Add(-maxSpare - time.Millisecond)
	}
	c.Conns.mu.Unlock()
	if r := c.claimed(t, &ingest.Job{Method: "POST"}); r.Status != 200 {
		t.Errorf("called on a connection that the server had closed: %+v", r)
	}
	if got := c.Conns.counts(); got != (counts{alive: 1}) {
		t.Errorf("counts after the stale ones went: %+v", got)
	}
}

// TestClaimsDialAhead checks that a claimed call finds its connection: none is dialled in its slot.
func TestClaimsDialAhead(t *testing.T) {
	hold := make(chan struct{})
	server := newRawServer(t, overTCP, func(conn net.Conn, _ int) {
		select {
		case <-hold:
		case <-time.After(await.Patience):
		}
		say(conn, answerOK)
	})
	lift := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(lift)
	c := callerOf(t, "http://"+server.listener.Addr().String())
	const n = 20
	for range n {
		if err := c.Conns.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.Conns.counts(); got != (counts{alive: n, claimed: n, spare: n}) {
		t.Errorf("after %d claims: %+v", n, got)
	}
	await.Until(t, "all connections at the server", func() bool { now, _ := server.conns(); return now == n })
	c.Conns.mu.Lock()
	for i := range c.Conns.spare {
		c.Conns.spare[i].since = time.Now().Add(time.Minute) // that they stay fresh is not what a busy machine decides
	}
	c.Conns.mu.Unlock()
	_ = server.listener.Close() // from here on nothing can be dialled
	var calls sync.WaitGroup
	for range n {
		calls.Go(func() {
			defer c.Conns.Release()
			if r := c.Call(t.Context(), &ingest.Job{Method: "POST"}, Hooks{}); r.Status != 200 {
				t.Errorf("a call whose connection was claimed: %+v", r)
			}
		})
	}
	await.Until(t, "all requests", func() bool { return len(server.seen()) == n })
	lift()
	await.Return(t, "all calls", calls.Wait)
}

func TestReleaseWithoutClaim(t *testing.T) {
	c := callerOf(t, "http://127.0.0.1:1")
	defer func() {
		if recover() == nil {
			t.Error("a release too many went unnoticed")
		}
		c.Conns.acquired = 0
	}()
	c.Conns.Release()
}

// TestTLS checks calls over TLS: they are counted, never sent if the certificate is not trusted, and never sent
// twice.
func TestTLS(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/break" {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, r.Proto)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	c := callerOf(t, server.URL)
	if err := c.Conns.Acquire(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("trusted a certificate of nobody: %v", err)
	}
	if got := c.Conns.counts(); got != (counts{}) {
		t.Errorf("counts after a failed handshake: %+v", got)
	}
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	c.Conns.trust.Load = func() (*tls.Config, error) { return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, nil }
	for range 3 {
		if r := c.claimed(t, &ingest.Job{Method: "POST"}); r.Status != 200 || string(r.Body) != "HTTP/1.1" {
			t.Errorf("over TLS: %+v %s", r, r.Body)
		}
	}
	if r := c.claimed(t, &ingest.Job{Method: "GET", Path: "/break"}); !r.Sent || r.Status != 0 {
		t.Errorf("broken off over TLS: %+v", r)
	}
	c.Conns.Close()
	await.Until(t, "no connections", func() bool { return c.Conns.counts() == counts{} })
}

// TestHandshakeThatHangs checks that a TLS handshake that does not end is given up, and its connection counted
// out once.
func TestHandshakeThatHangs(t *testing.T) {
	silent := newRawServer(t, overTCP, func(net.Conn, int) {})
	base := &url.URL{Scheme: "https", Host: silent.listener.Addr().String()}
	conns := NewConnections(base, Trust{}, time.Minute, 4)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if err := conns.Acquire(ctx); err == nil {
		t.Error("a handshake with nobody succeeded")
	}
	if got := conns.counts(); got != (counts{}) {
		t.Errorf("counts after a handshake that hung: %+v", got)
	}
}

// TestSentOverTLS checks that only the request counts as sent: what TLS sends by itself does not.
func TestSentOverTLS(t *testing.T) {
	server, client := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, server) }()
	c := &countedConn{Conn: tls.Client(client, &tls.Config{ServerName: "x"}), owner: &Connections{alive: 1}, turns: &turns{moved: make(chan struct{}, 1)}}
	w := wire{conn: c}
	_ = c.Close() // says close_notify, or tries to
	_ = server.Close()
	if w.sent() || c.owner.counts() != (counts{}) {
		t.Errorf("sent %v, %+v", w.sent(), c.owner.counts())
	}
}
