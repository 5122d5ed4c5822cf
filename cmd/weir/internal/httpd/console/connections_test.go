package console

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"weir/ingest/await"
)

// dialRaw connects and sends nothing.
func dialRaw(t *testing.T, s *Server) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ended reports whether the server has closed a connection. It does not wait for that.
func ended(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

func count(all []net.Conn, is func(net.Conn) bool) (n int) {
	for _, c := range all {
		if is(c) {
			n++
		}
	}
	return n
}

// TestWaitingConnectionsGiveWay checks that a client that only holds connections cannot shut out another client, and
// has no more than the bound. An answer that is being written is not cut off for this.
func TestWaitingConnectionsGiveWay(t *testing.T) {
	s, _ := start(t, "127.0.0.1:0", token)
	long := dialRaw(t, s)
	_, _ = fmt.Fprintf(long, "POST /api/v1/test/viewer HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n", token)
	// The status 100 says that the handler reads the body.
	if line, err := bufio.NewReader(long).ReadString('\n'); err != nil || !strings.Contains(line, "100") {
		t.Fatalf("%q, %v", line, err)
	}
	var held []net.Conn
	for range 3 * s.opts.Connections {
		held = append(held, dialRaw(t, s))
	}
	for range 5 {
		fresh := dialRaw(t, s)
		_, _ = io.WriteString(fresh, "GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if text, err := io.ReadAll(fresh); err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 200") {
			t.Fatalf("beside %d connections that only wait: %q, %v", len(held), text, err)
		}
	}
	await.Until(t, "connections that are closed", func() bool { return count(held, ended) >= len(held)-s.opts.Connections })
	_, _ = io.WriteString(long, "whole")
	answer, err := http.ReadResponse(bufio.NewReader(long), nil)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(answer.Body); err != nil || !strings.HasSuffix(string(text), "whole") {
		t.Fatalf("a request under way was answered %q, %v", text, err)
	}
}

// TestHeadersAreBounded checks the bound on the unfinished headers of all requests together. It never affects requests
// with small headers.
func TestHeadersAreBounded(t *testing.T) {
	s, _ := start(t, "127.0.0.1:0", token)
	const each = 60 << 10
	var held []net.Conn
	for range s.opts.Connections / 2 {
		c := dialRaw(t, s)
		// An error means that the server has closed the connection, as it should.
		_, _ = fmt.Fprintf(c, "GET /livez HTTP/1.1\r\nHost: x\r\nX: %s", strings.Repeat("x", each))
		held = append(held, c)
	}
	fit := int(s.opts.HeaderBytes/(each-usualHeaders)) + 1
	await.Until(t, "connections that are closed", func() bool { return count(held, ended) >= len(held)-fit })
	for range 5 {
		if res, _ := ask(t, s, request{path: "/livez"}); res.StatusCode != http.StatusOK {
			t.Fatalf("small headers beside large ones are answered %d", res.StatusCode)
		}
	}
	for _, c := range held {
		_ = c.Close()
	}
	await.Until(t, "large headers alone", func() bool { // the connections gave back what they held
		res, err := large(s, strings.Repeat("x", each))
		return err == nil && res.StatusCode == http.StatusOK
	})
}

func large(s *Server, header string) (*http.Response, error) {
	q, err := http.NewRequest("GET", "http://"+s.Addr()+"/livez", nil)
	if err != nil {
		return nil, err
	}
	q.Header.Set("X", header)
	res, err := http.DefaultTransport.RoundTrip(q)
	if err == nil {
		_ = res.Body.Close()
	}
	return res, err
}

// TestUnreadBodiesHoldNoConnection checks that the server does not wait for a body that no handler reads: from a client
// without a token, for an unknown path, or for a route without a body.
func TestUnreadBodiesHoldNoConnection(t *testing.T) {
	s, _ := start(t, "127.0.0.1:0", token)
	for _, path := range []string{"POST /api/v1/test/operator", "POST /nowhere", "GET /livez"} {
		c := dialRaw(t, s)
		_, _ = fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 200000\r\n\r\n", path)
		_ = c.SetReadDeadline(time.Now().Add(usualTime / 2))
		if text, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 ") {
			t.Errorf("%s, of whose body nothing comes, is answered %.40q, %v", path, text, err)
		}
	}
}

// TestAnswersHoldNoConnection checks that a body that is not read because its route is busy, or because its handler
// answered before it came, holds its connection no longer than any other unread body.
func TestAnswersHoldNoConnection(t *testing.T) {
	s, _ := start(t, "127.0.0.1:0", "")
	inside, leave := make(chan bool, 1), make(chan bool)
	hold := func(_ http.ResponseWriter, r *http.Request, _ Actor) {
		inside <- true
		select {
		case <-leave:
		case <-r.Context().Done():
		}
	}
	careless := func(w http.ResponseWriter, _ *http.Request, _ Actor) { w.WriteHeader(http.StatusTeapot) }
	s.Add(
		Route{Method: "POST", Path: "/dear", Role: Viewer, MaxBody: 1 << 20, AtOnce: 1, Serve: hold},
		Route{Method: "POST", Path: "/careless", Role: Viewer, MaxBody: 1 << 20, Time: time.Hour, Serve: careless},
	)
	defer close(leave)
	_, _ = io.WriteString(dialRaw(t, s), "POST /dear HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	await.Receive(t, "the first is being answered", inside)
	for path, want := range map[string]string{"/dear": "HTTP/1.1 503 ", "/careless": "HTTP/1.1 418 "} {
		c := dialRaw(t, s)
		_, _ = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 200000\r\n\r\n", path)
		_ = c.SetReadDeadline(time.Now().Add(usualTime / 2))
		if text, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(text), want) {
			t.Errorf("%s is answered %.40q, %v", path, text, err)
		}
	}
}

// TestLoginsLeaveConnections checks that clients whose logins do not arrive shut out no probe, although logins need no
// token.
func TestLoginsLeaveConnections(t *testing.T) {
	s, _ := start(t, "127.0.0.1:0", token)
	for range s.opts.Connections {
		c := dialRaw(t, s)
		_, _ = io.WriteString(c, "POST /api/v1/login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n"+
			"Expect: 100-continue\r\n\r\n")
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 ") {
			t.Fatalf("%q, %v", line, err)
		}
	}
	held := time.Now()
	await.Until(t, "a probe to be answered", func() bool {
		fresh := dialRaw(t, s)
		_, _ = io.WriteString(fresh, "GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		text, err := io.ReadAll(fresh)
		return err == nil && strings.HasPrefix(string(text), "HTTP/1.1 200")
	})
	if waited := time.Since(held); waited > usualTime/2 {
		t.Errorf("a probe was answered after %v", waited)
	}
}

// TestReadinessOutlivesTheClient checks that a client that has gone does not fail the check of readiness, because all
// clients share its answer.
func TestReadinessOutlivesTheClient(t *testing.T) {
	s := &Server{opts: Options{Ready: func(ctx context.Context) error { return ctx.Err() }}}
	gone, leave := context.WithCancel(t.Context())
	leave()
	for _, ctx := range []context.Context{gone, t.Context()} {
		res := httptest.NewRecorder()
		s.readyz(res, httptest.NewRequestWithContext(ctx, "GET", "/readyz", nil), Actor{Role: Viewer})
		if res.Code != http.StatusOK {
			t.Errorf("a client is told %d %s", res.Code, res.Body)
		}
	}
}

// TestLivezTellsTheEnd checks that /livez fails if the process must be restarted, and that only viewers read why.
func TestLivezTellsTheEnd(t *testing.T) {
	why := errors.New("the connection has ended")
	s := &Server{opts: Options{Alive: func() error { return why }}}
	for role, told := range map[Role]bool{Anybody: false, Producer: false, Viewer: true, Operator: true} {
		res := httptest.NewRecorder()
		s.livez(res, nil, Actor{Role: role})
		if res.Code != http.StatusServiceUnavailable || strings.Contains(res.Body.String(), why.Error()) != told {
			t.Errorf("%s is told %d %s", role, res.Code, res.Body)
		}
	}
}
