// Package console serves weir's HTTP side: metrics, health, and a page that leads to them.
package console

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"sync"
	"time"

	"weir/cmd/weir/internal/config"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

//go:embed index.html
var files embed.FS

// Options of a Server. All but Token are required.
type Options struct {
	Listen string // host:port; anything but a loopback address is refused without a Token
	// Token is what every request but a probe's must bear (Authorization: Bearer …). Empty: none.
	Token    string
	Gatherer prometheus.Gatherer
	Version  string
	// Ready reports whether a job could be taken and dispatched now.
	Ready func(context.Context) error
}

// readyTimeout bounds one look at readiness, readyCache how long its answer holds: probes must not load the store.
const (
	readyTimeout = 3 * time.Second
	readyCache   = time.Second
)

// Server is the running HTTP side.
type Server struct {
	http     *http.Server
	listener net.Listener
	serving  bool
	served   chan error
	opts     Options
	close    func() error // once

	mu      sync.Mutex // of all below
	checked time.Time
	answer  error
}

// Listen takes the address. Whoever connects waits for Serve.
func Listen(o Options) (*Server, error) {
	if o.Token == "" && !config.IsLoopback(o.Listen) {
		return nil, fmt.Errorf("WEIR_HTTP_LISTEN %s: others than this machine could connect, without authentication: set WEIR_HTTP_TOKEN", o.Listen)
	}
	page, err := template.ParseFS(files, "index.html")
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("WEIR_HTTP_LISTEN %s: %w", o.Listen, err)
	}
	s := &Server{opts: o, listener: listener, served: make(chan error, 1)}
	s.close = sync.OnceValue(s.closeNow)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.bearing(promhttp.HandlerFor(o.Gatherer, promhttp.HandlerOpts{MaxRequestsInFlight: 4, EnableOpenMetrics: true})))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /{$}", s.bearing(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		_ = page.Execute(w, o) // the client has gone
	})))
	s.http = &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
	}
	return s, nil
}

// Serve answers from then on, until Close. It does not block, and is to be called once, and not after Close.
func (s *Server) Serve() {
	s.serving = true
	go func() { s.served <- s.http.Serve(s.listener) }()
}

// Addr is where the server listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close stops listening and serving and returns when the server has ended. Only the first one does.
func (s *Server) Close() error { return s.close() }

func (s *Server) closeNow() error {
	if !s.serving {
		return s.listener.Close()
	}
	err := s.http.Close()
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// readyz is open to everybody, as probes need it; why weir is not ready is told to those who bear the token.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if err := s.ready(r.Context()); err != nil {
		why := "not ready"
		if s.bears(r) {
			why += ": " + err.Error()
		}
		answer(w, http.StatusServiceUnavailable, why)
		return
	}
	answer(w, http.StatusOK, "ready")
}

func (s *Server) ready(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.checked) < readyCache {
		return s.answer
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	s.answer, s.checked = s.opts.Ready(ctx), time.Now()
	return s.answer
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, text) // the client has gone
}
