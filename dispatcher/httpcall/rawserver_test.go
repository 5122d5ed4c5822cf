package httpcall

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/ingest"
	"weir/ingest/await"
)

// rawServer speaks HTTP by hand, so that it can misbehave in every way there is.
type rawServer struct {
	listener net.Listener
	answer   func(conn net.Conn, n int) // the n-th request, from 1, has been read; closing conn ends it
	running  sync.WaitGroup

	mu       sync.Mutex
	requests []rawRequest
	open     map[net.Conn]bool
	accepted int
}

// rawRequest is a request as it came over the wire.
type rawRequest struct {
	line   string
	header []string // lines, sorted
	body   []byte
}

// newRawServer serves on a free loopback port, over the listener that wrap returns.
func newRawServer(t *testing.T, wrap func(net.Listener) net.Listener, answer func(conn net.Conn, n int)) *rawServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &rawServer{listener: wrap(listener), answer: answer, open: map[net.Conn]bool{}}
	s.running.Go(s.accept)
	t.Cleanup(func() {
		s.stop()
		await.Return(t, "the end of the server", s.running.Wait)
	})
	return s
}

func overTCP(l net.Listener) net.Listener { return l }

func (s *rawServer) stop() {
	_ = s.listener.Close() // closed already, perhaps
	s.closeConns()
}

// closeConns closes every connection, whatever it is doing.
func (s *rawServer) closeConns() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.open {
		_ = conn.Close()
	}
}

func (s *rawServer) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.accepted++
		s.open[conn] = true
		s.mu.Unlock()
		s.running.Go(func() {
			s.serve(conn)
			_ = conn.Close()
			s.mu.Lock()
			delete(s.open, conn)
			s.mu.Unlock()
		})
	}
}

func (s *rawServer) serve(conn net.Conn) {
	var wire bytes.Buffer
	in := bufio.NewReader(io.TeeReader(conn, &wire))
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		head, _, _ := strings.Cut(wire.String(), "\r\n\r\n")
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		wire.Reset()
		line, header, _ := strings.Cut(head, "\r\n")
		fields := strings.Split(header, "\r\n")
		slices.Sort(fields)
		s.mu.Lock()
		s.requests = append(s.requests, rawRequest{line, fields, body})
		n := len(s.requests)
		s.mu.Unlock()
		s.answer(conn, n)
	}
}

func (s *rawServer) seen() []rawRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// conns returns how many connections there are now, and how many there have been.
func (s *rawServer) conns() (now, ever int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open), s.accepted
}

// say answers with these bytes.
func say(conn net.Conn, text string) { _, _ = io.WriteString(conn, text) }

const answerOK = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// callerOf makes calls to a server at this address.
func callerOf(t *testing.T, address string) *Client {
	t.Helper()
	base, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	api := &API{
		Name: "pay", URL: base, Timeout: 10 * time.Second, MaxResult: 1 << 16,
		Headers: func() ([]ingest.HeaderField, error) { return nil, nil },
	}
	c := &Client{API: api, Agent: "weir/test", Conns: NewConnections(base, Trust{}, time.Minute, 16)}
	t.Cleanup(c.Conns.Close)
	return c
}

// claimed makes a call with an acquired connection, as a lane does.
func (c *Client) claimed(t *testing.T, j *ingest.Job) Response {
	t.Helper()
	if err := c.Conns.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer c.Conns.Release()
	return c.Call(t.Context(), j, Hooks{})
}
