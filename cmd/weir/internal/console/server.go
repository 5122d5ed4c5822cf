// Package console serves weir's HTTP side: metrics, health, who may do what, and the pages of the console.
package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"weir/cmd/weir/internal/config"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Options of a Server. All but Token and Named are required.
type Options struct {
	Listen string // host:port
	// Token is what a request may bear to do everything (Authorization: Bearer …). Empty: there is none.
	Token string
	// Named is the configuration in force of the HTTP side. It may answer nil; it is asked for each request.
	Named func() *config.HTTP
	// Auth is whom a loopback address lets in while there is no token: with AuthOperators whom weir runs as and root for operators, and
	// other users of the machine to look and to hand jobs in; with AuthOpen all of them for operators; with AuthRequired nobody but probes.
	Auth config.NATSAuth
	// Connections is how many may be open at a time; at one more, the one ends that has waited longest for its next request.
	Connections int
	// HeaderBytes bounds what all requests' headers hold at a time beyond 4 KiB each. Connections that ask for more are closed.
	HeaderBytes int64
	Log         *slog.Logger // of what net/http tells
	Gatherer    prometheus.Gatherer
	Version     string
	// Ready reports whether a job could be taken and dispatched now.
	Ready func(context.Context) error
	// Alive reports why the process can do nothing any more, and is to be started anew; nil while it can.
	Alive func() error
	// Remarks are what the one that may look is told beside readiness, a line each. Nil: nothing.
	Remarks func() []string
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
	access   *Access
	origins  origins
	mux      *http.ServeMux
	routes   []Route
	close    func() error // once

	mu      sync.Mutex // of all below
	checked time.Time
	answer  error
}

// Listen takes the address. Whoever connects waits for Serve. Whether others than this machine may be listened to is not asked here: see
// config.Settings.Guarded. Without any token they are refused everything but the probes.
func Listen(o Options) (*Server, error) {
	pages, err := pageRoutes()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("WEIR_HTTP_LISTEN %s: %w: where another program listens there, end it, or set WEIR_HTTP_LISTEN to another address", o.Listen, err)
	}
	access := newAccess(o.Token, config.IsLoopback(o.Listen), o.Auth, o.Named)
	bounded := &connections{Listener: listener, most: o.Connections, headers: o.HeaderBytes}
	s := &Server{opts: o, listener: bounded, served: make(chan error, 1), access: access, origins: newOrigins(access), mux: http.NewServeMux()}
	s.close = sync.OnceValue(s.closeNow)
	metrics := promhttp.HandlerFor(o.Gatherer, promhttp.HandlerOpts{MaxRequestsInFlight: 4, EnableOpenMetrics: true})
	s.Add(
		Route{Method: "GET", Path: "/metrics", Role: Viewer, Serve: func(w http.ResponseWriter, r *http.Request, _ Actor) { metrics.ServeHTTP(w, r) }},
		Route{Method: "GET", Path: "/livez", Role: Anybody, Open: true, Serve: s.livez},
		Route{Method: "GET", Path: "/readyz", Role: Anybody, Open: true, Serve: s.readyz},
	)
	s.Add(pages...)
	s.Add(SessionRoutes(access)...)
	s.http = &http.Server{
		Handler: protect(s.routed()), ReadHeaderTimeout: headerTime, ReadTimeout: usualTime, WriteTimeout: usualTime + writeGrace,
		IdleTimeout: time.Minute, MaxHeaderBytes: maxHeaders, ConnContext: withCaller, ConnState: bounded.state,
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn),
	}
	return s, nil
}

// Add puts further ways in, before Serve. It panics on one that is there already.
func (s *Server) Add(routes ...Route) {
	for _, r := range routes {
		s.mux.Handle(r.Method+" "+r.Path, s.handler(r))
		s.routes = append(s.routes, r)
	}
}

// Routes are all ways in.
func (s *Server) Routes() []Route { return s.routes }

// Serve answers from then on, until Close. It does not block, and is to be called once, and not after Close.
func (s *Server) Serve() {
	s.serving = true
	go func() { s.served <- s.http.Serve(s.listener) }()
}

// Addr is where the server listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close stops listening and serving and returns when the server has ended. Only the first one does.
func (s *Server) Close() error { return s.close() }

// closeGrace is how long answers that are being written may take when the server closes: a job may be stored whose receipt is among them.
const closeGrace = 250 * time.Millisecond

func (s *Server) closeNow() error {
	if !s.serving {
		return s.listener.Close()
	}
	grace, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	err := s.http.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) { // a stream of events has no end
		err = s.http.Close()
	}
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// livez is open to everybody, as probes need it; why weir ends is told to those who may look.
func (s *Server) livez(w http.ResponseWriter, _ *http.Request, who Actor) {
	err := s.opts.Alive()
	switch {
	case err == nil:
		answer(w, http.StatusOK, "ok")
	case who.Role.covers(Viewer):
		answer(w, http.StatusServiceUnavailable, "start it anew: "+err.Error())
	default:
		answer(w, http.StatusServiceUnavailable, "start it anew")
	}
}

// readyz is open to everybody, as probes need it; why weir is not ready is told to those who may look.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request, who Actor) {
	if err := s.ready(r.Context()); err != nil {
		why := "not ready"
		if who.Role.covers(Viewer) {
			why += ": " + err.Error()
		}
		answer(w, http.StatusServiceUnavailable, why)
		return
	}
	told := []string{"ready"}
	if s.opts.Remarks != nil && who.Role.covers(Viewer) {
		told = append(told, s.opts.Remarks()...)
	}
	answer(w, http.StatusOK, strings.Join(told, "\n"))
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
