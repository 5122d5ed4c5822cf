package console

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"
)

// Route is one entry of the HTTP interface: its requests, the role that they need, their bounds and their handler.
type Route struct {
	Method string // a GET route also answers HEAD
	Path   string // in the syntax of http.ServeMux
	Role   Role   // the role that a request needs
	Serve  func(w http.ResponseWriter, r *http.Request, who Actor)

	MaxBody int64         // the most bytes of a request's body; 0: a request has no body
	Time    time.Duration // for the whole request; 0: usualTime; Endless: the handler sets its own bounds
	AtOnce  int           // the most requests answered at the same time; 0: no bound; a further request is answered with 503
	Page    bool          // a page or a part of a page, to which other sites may link
	Open    bool          // requests under any host name and from any site are allowed, for probes
}

// Endless is the Time of a route that streams.
const Endless = time.Duration(-1)

// Bounds of a request.
const (
	usualTime  = 30 * time.Second
	headerTime = 5 * time.Second
	maxHeaders = 64 << 10
	busyAgain  = time.Second // Retry-After for a request beyond AtOnce
	writeGrace = 2 * time.Second
	unreadTime = time.Second // for the part of a body that the handler did not read
)

// handler wraps the route's handler in the checks that every request must pass.
func (s *Server) handler(r Route) http.Handler {
	var atOnce chan struct{}
	if r.AtOnce > 0 {
		atOnce = make(chan struct{}, r.AtOnce)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if !r.Open {
			if p := s.origins.refuse(q, r.Page); p != nil {
				unread(w, q)
				p.Write(w)
				return
			}
		}
		who, p := s.access.May(q, r.Role)
		if p != nil {
			unread(w, q)
			p.Write(w)
			return
		}
		if atOnce != nil {
			select {
			case atOnce <- struct{}{}:
				defer func() { <-atOnce }()
			default:
				busy := NewProblem(http.StatusServiceUnavailable, "%d requests of this kind are being answered: try again", r.AtOnce)
				busy.RetryAfter = busyAgain
				unread(w, q)
				busy.Write(w)
				return
			}
		}
		body := &requestBody{ReadCloser: http.MaxBytesReader(w, q.Body, r.MaxBody)}
		q.Body = body
		q, done := timed(w, q, r.Time)
		defer done()
		if r.MaxBody == 0 {
			unread(w, q)
		}
		r.Serve(w, q, who)
		if q.ContentLength != 0 && !body.ended {
			boundRest(w)
		}
	})
}

// requestBody records whether a request's body was read to its end.
type requestBody struct {
	io.ReadCloser
	ended bool
}

// Read implements io.Reader.
func (b *requestBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	b.ended = b.ended || err == io.EOF
	return n, err
}

// routed returns the handler of all routes. It turns the mux's own errors into problems.
func (s *Server) routed() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, pattern := s.mux.Handler(r)
		if pattern != "" {
			s.mux.ServeHTTP(w, r)
			return
		}
		no := refusal{header: http.Header{}, status: http.StatusNotFound}
		h.ServeHTTP(&no, r)
		if allow := no.header.Get("Allow"); allow != "" {
			w.Header().Set("Allow", allow)
		}
		unread(w, r)
		if no.status == http.StatusNotFound && showNowhere(w, r) {
			return
		}
		NewProblem(no.status, "there is no %s %s", r.Method, r.URL.Path).Write(w)
	})
}

// refusal captures the mux's answer to a request that matches no route.
type refusal struct {
	header http.Header
	status int
}

// Header implements http.ResponseWriter.
func (r *refusal) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *refusal) WriteHeader(status int) { r.status = status }

// Write implements http.ResponseWriter.
func (r *refusal) Write(text []byte) (int, error) { return len(text), nil }

// timed sets the deadlines of a request to its route's time.
func timed(w http.ResponseWriter, q *http.Request, t time.Duration) (*http.Request, context.CancelFunc) {
	connection := http.NewResponseController(w)
	switch t {
	case Endless:
		// No deadline: if one passed, net/http would assume that the client has gone.
		_ = connection.SetReadDeadline(time.Time{})
		_ = connection.SetWriteDeadline(time.Time{})
		return q, func() {}
	case 0:
		t = usualTime
	}
	deadline := time.Now().Add(t)
	// The context must end first: when the read deadline passes, net/http cancels the request as if the client had gone.
	_ = connection.SetReadDeadline(deadline.Add(writeGrace / 2))
	_ = connection.SetWriteDeadline(deadline.Add(writeGrace)) // leaves time to tell a client that its time is over
	ctx, cancel := context.WithDeadline(q.Context(), deadline)
	return q.WithContext(ctx), cancel
}

// unread bounds by unreadTime how long net/http waits for a body that no handler reads. Otherwise clients without a
// token could hold connections as long as clients whose bodies are read.
func unread(w http.ResponseWriter, q *http.Request) {
	if q.ContentLength == 0 {
		return
	}
	w.Header().Set("Connection", "close") // so the answer does not wait for the body
	boundRest(w)
}

// boundRest bounds by unreadTime how long net/http waits for the rest of a body. Do not call it after the whole body
// was read, because the deadline could then end the connection's next request.
func boundRest(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unreadTime))
}

// protect adds the security headers that every answer has.
func protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'") // pages replace it
		if strings.HasPrefix(r.URL.Path, "/api/") || strings.HasPrefix(r.URL.Path, "/v1/") {
			h.Set("Cache-Control", "no-store")
		}
		next.ServeHTTP(accepting(w, r), r)
	})
}
