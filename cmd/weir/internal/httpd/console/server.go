// Package console serves weir's HTTP interface: metrics, health, access rights, and the pages of the console.
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
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/config/grammar"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Options of a Server. All are required but Token, Named and Remarks.
type Options struct {
	Listen string // host:port
	// Token gives a request every right (Authorization: Bearer …). "" means that there is no such token.
	Token string
	// Named returns the HTTP configuration in force, or nil. The server calls Named for each request.
	Named func() *config.HTTP
	// Auth decides what users of this machine may do at a loopback address while no token exists. With AuthOperators,
	// weir's own user and root are operators, and other users may view and submit jobs. With AuthOpen, all users are
	// operators. With AuthRequired, only probes and requests for the console's files are admitted.
	Auth environment.NATSAuth
	// Connections bounds the open connections. A further connection closes the one that has waited longest for a
	// request.
	Connections int
	// HeaderBytes bounds the header bytes of all present requests together. 4 KiB of each request are not counted. A
	// connection that would exceed the bound is closed.
	HeaderBytes int64
	Log         *slog.Logger // for net/http's messages
	Gatherer    prometheus.Gatherer
	Version     string
	// Ready returns nil if weir could accept and dispatch a job now.
	Ready func(context.Context) error
	// Alive returns why the process must be restarted, nil while it works.
	Alive func() error
	// Remarks returns lines that readyz adds for users who may view. Optional.
	Remarks func() []string
}

// readyTimeout bounds one check of readiness. readyCache is how long the server uses the check's result again, so that
// probes do not load the store.
const (
	readyTimeout = 3 * time.Second
	readyCache   = time.Second
)

// Server is the HTTP interface, from Listen to Close.
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
	close    func() error // runs once

	mu      sync.Mutex // guards the fields below
	checked time.Time
	answer  error
}

// Listen opens the address. Clients that connect wait until Serve. Listen does not check whether other machines may
// connect: environment.Settings.Guarded does that. While there is no token, other machines can reach only the probes
// and the console's files.
func Listen(o Options) (*Server, error) {
	pages, err := pageRoutes()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("WEIR_HTTP_LISTEN %s: %w: if another program listens there, end it, or set WEIR_HTTP_LISTEN to another address", o.Listen, err)
	}
	access := newAccess(o.Token, grammar.IsLoopback(o.Listen), o.Auth, o.Named)
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

// Add adds routes. It must be called before Serve, and panics if a route already exists.
func (s *Server) Add(routes ...Route) {
	for _, r := range routes {
		s.mux.Handle(r.Method+" "+r.Path, s.handler(r))
		s.routes = append(s.routes, r)
	}
}

// Routes returns the added routes and the server's own routes.
func (s *Server) Routes() []Route { return s.routes }

// Serve answers requests until Close. It does not block. Call it at most once, and not after Close.
func (s *Server) Serve() {
	s.serving = true
	go func() { s.served <- s.http.Serve(s.listener) }()
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close stops the server, and returns when the server has stopped. Only the first call has an effect.
func (s *Server) Close() error { return s.close() }

// closeGrace is how long Close waits for answers that are being written. Such an answer may be the receipt of a stored
// job.
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

// livez answers every client, because probes need it. Only users who may view read why weir cannot work any more.
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

// readyz answers every client, because probes need it. Only users who may view read why weir is not ready.
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

// ready runs the check at most once per readyCache. All clients share the check's result, so a client that disconnects
// does not end the check.
func (s *Server) ready(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.checked) < readyCache {
		return s.answer
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
	defer cancel()
	s.answer, s.checked = s.opts.Ready(ctx), time.Now()
	return s.answer
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, text) // an error means that the client has gone
}
