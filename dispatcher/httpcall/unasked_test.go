package httpcall

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/ingest"
	"weir/ingest/await"
)

const answerWrong = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nWRONG"

// TestNoAnswerIsAnothersCall checks that if an api sends two answers to each request, none counts as the answer
// to the next one.
func TestNoAnswerIsAnothersCall(t *testing.T) {
	server := newRawServer(t, overTCP, func(conn net.Conn, _ int) { say(conn, answerOK+answerWrong) })
	c := callerOf(t, "http://"+server.listener.Addr().String())
	const callers, each = 16, 400
	var sent, wrong atomic.Int64
	var calls sync.WaitGroup
	for range callers {
		calls.Go(func() {
			for range each {
				r := c.claimed(t, &ingest.Job{Method: "POST", Body: []byte("pay")})
				if r.Sent {
					sent.Add(1)
				}
				if string(r.Body) == "WRONG" {
					wrong.Add(1)
				}
				if r.Err != nil && !errors.Is(r.Err, errUnasked) && !errors.Is(r.Err, errShut) {
					t.Error(r.Err)
				}
			}
		})
	}
	await.Return(t, "all calls", calls.Wait)
	if n := wrong.Load(); n != 0 {
		t.Errorf("%d of %d calls got what nobody had asked for", n, callers*each)
	}
	if c.Conns.trusts() {
		t.Error("its connections are used again")
	}
	await.Until(t, fmt.Sprintf("as many requests as calls that say that they were sent, %d", sent.Load()), func() bool {
		return int64(len(server.seen())) == sent.Load() // the last may be read when its call has ended
	})
}

// TestNothingComesBeforeTheRequest checks that what comes after a call got its connection and before its first
// byte left is no answer to it. The call is not made.
func TestNothingComesBeforeTheRequest(t *testing.T) {
	speak := make(chan net.Conn, 1)
	server := newRawServer(t, overTCP, func(conn net.Conn, n int) {
		say(conn, answerOK)
		if n == 1 {
			speak <- conn
		}
	})
	c := callerOf(t, "http://"+server.listener.Addr().String())
	job := &ingest.Job{Method: "POST", Body: []byte("pay")}
	if r := c.claimed(t, job); r.Status != 200 {
		t.Fatalf("%+v", r)
	}
	conn := await.Receive(t, "the first request", speak)
	if err := c.Conns.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := c.Call(t.Context(), job, Hooks{Begins: func() bool {
		say(conn, answerWrong)
		await.Until(t, "the api's word", c.Conns.unasked.Load)
		return true
	}})
	c.Conns.Release()
	if n := len(server.seen()); r.Sent || r.Status != 0 || r.Err == nil || n != 1 {
		t.Errorf("%d requests, and the second call is %+v", n, r)
	}
}

// TestUnreadIsNoAnswer checks that unread bytes in the socket when a call's first byte is about to be sent are
// no answer to it, and that a connection that the api has closed takes no call.
func TestUnreadIsNoAnswer(t *testing.T) {
	for what, speaks := range map[string]func(net.Conn){
		"an answer": func(conn net.Conn) { say(conn, answerWrong) },
		"the end":   func(conn net.Conn) { _ = conn.(*net.TCPConn).CloseWrite() },
	} {
		speak := make(chan net.Conn, 2)
		server := newRawServer(t, overTCP, func(conn net.Conn, _ int) { say(conn, answerOK); speak <- conn })
		job := &ingest.Job{Method: "POST", Body: []byte("pay")}
		for range 200 {
			c := callerOf(t, "http://"+server.listener.Addr().String())
			c.claimed(t, job)
			conn := await.Receive(t, "the first request", speak)
			if err := c.Conns.Acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
			r := c.Call(t.Context(), job, Hooks{Begins: func() bool { speaks(conn); return true }})
			c.Conns.Release()
			switch {
			case r.Sent && !r.Wire.Kept && string(r.Body) == "ok": // net/http was late with the connection, and dialled another
				await.Receive(t, "the request on another connection", speak)
			case r.Sent || r.Status != 0:
				t.Fatalf("a call into a connection on which there is %s already: %+v", what, r)
			}
			c.Conns.Close()
		}
	}
}

// TestSpeaksBetweenCalls checks that an api that sends something between two calls gets a new connection for
// each call from then on, which is reported once. An api that only announces that it closes the connection keeps
// its connections.
func TestSpeaksBetweenCalls(t *testing.T) {
	for said, distrusted := range map[string]bool{answerWrong: true, "x": true, "HTTP/1.1 408 Request Time-out\r\nConnection: close\r\n\r\n": false, "": false} {
		speak := make(chan net.Conn, 1)
		server := newRawServer(t, overTCP, func(conn net.Conn, n int) {
			say(conn, answerOK)
			if n == 1 {
				speak <- conn
			}
		})
		c := callerOf(t, "http://"+server.listener.Addr().String())
		job := &ingest.Job{Method: "POST", Body: []byte("pay")}
		c.claimed(t, job)
		conn := await.Receive(t, "the first request", speak)
		say(conn, said)
		_ = conn.(*net.TCPConn).CloseWrite()
		await.Until(t, "the end of the connection", func() bool { return c.Conns.counts().alive == 0 })
		for range 3 {
			if r := c.claimed(t, job); string(r.Body) != "ok" {
				t.Errorf("%q: a call behind it is %+v", said, r)
			}
		}
		if told := c.Conns.Unasked(); told != distrusted || c.Conns.Unasked() {
			t.Errorf("%q: it is told: %v, and again: %v", said, told, c.Conns.Unasked())
		}
		want := 2
		if distrusted {
			want = 4
		}
		if _, ever := server.conns(); ever != want {
			t.Errorf("%q: %d connections for 4 calls, want %d", said, ever, want)
		}
		if closes := slices.Contains(server.seen()[3].header, "Connection: close"); closes != distrusted {
			t.Errorf("%q: the last request says that it is the only one: %v", said, closes)
		}
	}
}

// TestAnsweredBeforeAsked checks that an answer that comes as soon as a connection is there does not answer a
// request that is not sent yet, and completes no job.
func TestAnsweredBeforeAsked(t *testing.T) {
	server := newRawServer(t, func(l net.Listener) net.Listener { return greeting{l} }, func(net.Conn, int) {})
	c := callerOf(t, "http://"+server.listener.Addr().String())
	if err := c.Conns.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer c.Conns.Release()
	r := c.Call(t.Context(), &ingest.Job{Method: "POST", Body: []byte("pay")}, Hooks{Begins: func() bool {
		for end := time.Now().Add(await.Patience); c.Conns.counts().alive > 0 && time.Now().Before(end); {
			runtime.Gosched()
		}
		return true
	}})
	if r.Sent || r.Status != 0 || !errors.Is(r.Err, errUnasked) || c.Conns.Unasked() {
		t.Errorf("%+v", r)
	}
}

// greeting is a listener whose connections say something first.
type greeting struct{ net.Listener }

// Accept implements net.Listener.
func (g greeting) Accept() (net.Conn, error) {
	conn, err := g.Listener.Accept()
	if err == nil {
		say(conn, answerWrong)
	}
	return conn, err
}
