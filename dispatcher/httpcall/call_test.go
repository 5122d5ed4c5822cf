package httpcall

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/ingest"
)

// TestNothingSendsAgain checks that net/http makes one request for one call. On a connection that it used
// before, net/http tends to resend what it takes for repeatable: GET and the like, and requests with an
// Idempotency-Key and no body.
func TestNothingSendsAgain(t *testing.T) {
	key := []ingest.HeaderField{{Name: "Idempotency-Key", Value: "k"}, {Name: "X-Idempotency-Key", Value: "k"}}
	for _, job := range []*ingest.Job{
		{Method: "GET"},
		{Method: "HEAD"},
		{Method: "OPTIONS"},
		{Method: "TRACE"},
		{Method: "DELETE"},
		{Method: "POST"},
		{Method: "PUT"},
		{Method: "GET", Forward: key},
		{Method: "POST", Forward: key},
		{Method: "DELETE", Forward: key},
		{Method: "POST", Body: []byte("pay")},
		{Method: "POST", Body: []byte("pay"), Forward: key},
		{Method: "GET", Body: []byte("q")},
	} {
		for _, idempotent := range []*Idempotency{nil, {Header: "Idempotency-Key"}, {Header: "X-Idempotency-Key", Quoted: true}} {
			for how, breakOff := range map[string]func(net.Conn){
				"close": func(c net.Conn) { _ = c.Close() },
				"reset": func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0); _ = c.Close() },
			} {
				t.Run(fmt.Sprintf("%s %d bytes %d headers %v %s", job.Method, len(job.Body), len(job.Forward), idempotent, how), func(t *testing.T) {
					server := newRawServer(t, overTCP, func(conn net.Conn, n int) {
						if n == 1 {
							say(conn, answerOK)
							return
						}
						breakOff(conn)
					})
					c := callerOf(t, "http://"+server.listener.Addr().String())
					c.API.Idempotency = idempotent
					if r := c.claimed(t, &ingest.Job{Method: "POST", ID: "first"}); r.Status != 200 || r.Cut {
						t.Fatalf("the first call: %+v", r)
					}
					r := c.claimed(t, job)
					if !r.Sent || r.Status != 0 || r.Err == nil {
						t.Errorf("what was sent and not answered: %+v", r)
					}
					if n := len(server.seen()); n != 2 {
						t.Errorf("%d requests for 2 calls", n)
					}
				})
			}
		}
	}
}

// TestSentOnlyIfWritten closes the connection under an idle client: what could not be written was not sent, and
// what arrived was.
func TestSentOnlyIfWritten(t *testing.T) {
	server := newRawServer(t, overTCP, func(conn net.Conn, _ int) { say(conn, answerOK) })
	c := callerOf(t, "http://"+server.listener.Addr().String())
	for range 200 {
		before := len(server.seen())
		r := c.claimed(t, &ingest.Job{Method: "POST", Body: []byte("pay")})
		arrived := len(server.seen()) - before
		if arrived > 1 || arrived == 1 && !r.Sent || r.Status != 0 && arrived != 1 {
			t.Fatalf("%d requests arrived: %+v", arrived, r)
		}
		server.closeConns() // at the moment of the next call
	}
}

// TestRequestOnTheWire compares whole requests, byte for byte.
func TestRequestOnTheWire(t *testing.T) {
	server := newRawServer(t, overTCP, func(conn net.Conn, n int) { say(conn, "HTTP/1.1 204 No Content\r\n\r\n") })
	host := server.listener.Addr().String()
	agent := "User-Agent: weir/test"
	for _, c := range []struct {
		base   string
		job    ingest.Job
		line   string
		header []string
	}{
		{"", ingest.Job{Method: "GET"}, "GET / HTTP/1.1", nil},
		{"/v2", ingest.Job{Method: "GET"}, "GET /v2 HTTP/1.1", nil},
		{"/v2/", ingest.Job{Method: "GET", Path: "/a"}, "GET /v2/a HTTP/1.1", nil},
		{"/v2/", ingest.Job{Method: "GET"}, "GET /v2/ HTTP/1.1", nil},
		{"/v%2F2", ingest.Job{Method: "GET", Path: "/a%2Fb%20c/%C3%A9", Query: "q=%20+&&=;a=b?c"}, "GET /v%2F2/a%2Fb%20c/%C3%A9?q=%20+&&=;a=b?c HTTP/1.1", nil},
		{"", ingest.Job{Method: "GET", Path: `/a"<>{}|^[]'()*!$&+,;=:@~`}, `GET /a"<>{}|^[]'()*!$&+,;=:@~ HTTP/1.1`, nil},
		{"", ingest.Job{Method: "GET", Path: "/a//b", Query: "?"}, "GET /a//b?? HTTP/1.1", nil},
		{"", ingest.Job{Method: "HEAD", Path: "/h"}, "HEAD /h HTTP/1.1", nil},
		{"", ingest.Job{Method: "DELETE", Path: "/d"}, "DELETE /d HTTP/1.1", nil},
		{"", ingest.Job{Method: "POST"}, "POST / HTTP/1.1", []string{"Content-Length: 0"}},
		{"", ingest.Job{Method: "PATCH"}, "PATCH / HTTP/1.1", []string{"Content-Length: 0"}},
		{"", ingest.Job{Method: "POST", Body: []byte("\x00\r\n\xff")}, "POST / HTTP/1.1", []string{"Content-Length: 4"}},
		{"", ingest.Job{Method: "DELETE", Body: []byte("x")}, "DELETE / HTTP/1.1", []string{"Content-Length: 1"}},
		{"", ingest.Job{Method: "POST", Forward: []ingest.HeaderField{
			{Name: "Content-Type", Value: "text/plain"}, {Name: "X-Two", Value: "a"}, {Name: "X-Two", Value: "b"}, {Name: "Accept-Encoding", Value: "br"},
		}}, "POST / HTTP/1.1", []string{"Content-Length: 0", "Content-Type: text/plain", "X-Two: a", "X-Two: b", "Accept-Encoding: br"}},
	} {
		caller := callerOf(t, "http://"+host+c.base)
		before := len(server.seen())
		if r := caller.claimed(t, &c.job); r.Status != 204 || r.Err != nil {
			t.Fatalf("%s: %+v", c.line, r)
		}
		got := server.seen()[before]
		want := append([]string{agent, "Host: " + host}, c.header...)
		slices.Sort(want)
		if got.line != c.line || !slices.Equal(got.header, want) || string(got.body) != string(c.job.Body) {
			t.Errorf("base %q, job %+v:\n got %s %q\nwant %s %q", c.base, c.job, got.line, got.header, c.line, want)
		}
	}
}

func TestHeadersOfACall(t *testing.T) {
	server := newRawServer(t, overTCP, func(conn net.Conn, _ int) { say(conn, answerOK) })
	c := callerOf(t, "http://"+server.listener.Addr().String())
	secret := "one"
	c.API.Headers = func() ([]ingest.HeaderField, error) {
		if secret == "" {
			return nil, errors.New("no such file")
		}
		return []ingest.HeaderField{{Name: "X-Source", Value: "weir"}, {Name: "Authorization", Value: secret}}, nil
	}
	c.API.Idempotency = &Idempotency{Header: "X-Request-Id", Quoted: true}
	job := &ingest.Job{Method: "POST", ID: `a"b\c`, Forward: []ingest.HeaderField{{Name: "X-Source", Value: "job"}, {Name: "X-Request-Id", Value: "mine"}}}
	for _, secret = range []string{"one", "two"} {
		before := len(server.seen())
		c.claimed(t, job)
		got := server.seen()[before].header
		for _, want := range []string{"X-Source: weir", "Authorization: " + secret, `X-Request-Id: "a\"b\\c"`} {
			if !slices.Contains(got, want) {
				t.Errorf("no header %s in %q", want, got)
			}
		}
		if strings.Contains(strings.Join(got, "\n"), "job") || strings.Contains(strings.Join(got, "\n"), "mine") {
			t.Errorf("a job's header beside the configured one: %q", got)
		}
	}
	secret = ""
	if r := c.claimed(t, job); r.Sent || r.Err == nil || len(server.seen()) != 2 {
		t.Errorf("a call without its configured headers: %+v", r)
	}
}

// TestAnswers checks what is kept of each answer that a server may give.
func TestAnswers(t *testing.T) {
	long := strings.Repeat("x", 100)
	for _, c := range []struct {
		what, answer, method string
		status               int
		body                 string
		cut                  bool
	}{
		{"plain", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "POST", 200, "ok", false},
		{"chunked", "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "POST", 201, "ok", false},
		{"until the end", "HTTP/1.0 200 OK\r\n\r\nok", "POST", 200, "ok", false},
		{"as long as is kept", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n" + long[:10], "POST", 200, long[:10], false},
		{"longer", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + long, "POST", 200, long[:10], false},
		{"longer and broken off", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + long[:50], "POST", 200, long[:10], false},
		{"broken off", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n" + long[:5], "POST", 200, long[:5], true},
		{"broken chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nxx", "POST", 200, "xx", true},
		{"no content", "HTTP/1.1 204 No Content\r\n\r\n", "POST", 204, "", false},
		{"head", "HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n", "HEAD", 200, "", false},
		{"informed", "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "POST", 200, "ok", false},
		{"redirect", "HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n", "POST", 302, "", false},
		{"half a head", "HTTP/1.1 200 OK\r\nContent-Le", "POST", 0, "", false},
		{"not HTTP", "hello, my secret is swordfish\r\n\r\n", "POST", 0, "", false},
		{"not a header", "HTTP/1.1 200 OK\r\nswordfish\r\n\r\n", "POST", 0, "", false},
		{"not a length", "HTTP/1.1 200 OK\r\nContent-Length: swordfish\r\n\r\n", "POST", 0, "", false},
		{"another protocol", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nrest", "POST", 0, "", false},
		{"another protocol, badly", "HTTP/1.1 101 Switching Protocols\r\n\r\n", "POST", 0, "", false},
	} {
		t.Run(c.what, func(t *testing.T) {
			server := newRawServer(t, overTCP, func(conn net.Conn, _ int) {
				say(conn, c.answer)
				_ = conn.Close()
			})
			caller := callerOf(t, "http://"+server.listener.Addr().String())
			caller.API.MaxResult = 10
			r := caller.claimed(t, &ingest.Job{Method: c.method, Body: []byte("pay")})
			if !r.Sent || r.Status != c.status || string(r.Body) != c.body || r.Cut != c.cut || (r.Err != nil) != (c.cut || c.status == 0) {
				t.Errorf("%+v", r)
			}
			if r.Err != nil && strings.Contains(r.Err.Error(), "swordfish") {
				t.Errorf("the answer is quoted: %v", r.Err)
			}
			if r.Ended.Before(r.Started) {
				t.Errorf("ended %v before it started", r.Started.Sub(r.Ended))
			}
		})
	}
}

// TestCallEnds checks that every call ends by the api's timeout, at whatever point the api stops sending.
func TestCallEnds(t *testing.T) {
	for what, answer := range map[string]string{
		"silence":          "",
		"half a head":      "HTTP/1.1 200 OK\r\n",
		"head alone":       "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
		"half a body":      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
		"informed":         "HTTP/1.1 103 Early Hints\r\n\r\n",
		"another protocol": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
	} {
		t.Run(what, func(t *testing.T) {
			server := newRawServer(t, overTCP, func(conn net.Conn, _ int) { say(conn, answer) })
			c := callerOf(t, "http://"+server.listener.Addr().String())
			c.API.Timeout = 50 * time.Millisecond
			done := make(chan Response, 1)
			go func() {
				r := c.claimed(t, &ingest.Job{Method: "POST"})
				for tries := 1; !r.Sent && tries < 20; tries++ { // a busy machine may take that long to begin
					r = c.claimed(t, &ingest.Job{Method: "POST"})
				}
				done <- r
			}()
			select {
			case r := <-done:
				if !r.Sent || r.Err == nil || strings.HasPrefix(what, "ha") && !errors.Is(r.Err, errTimeout) && !errors.Is(r.Err, context.DeadlineExceeded) && !r.Cut {
					t.Errorf("%+v", r)
				}
			case <-time.After(90 * time.Second):
				t.Fatal("the call does not end")
			}
		})
	}
}
