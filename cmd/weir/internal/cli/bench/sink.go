package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// sink is the API that is called: it answers at once, counts, and may keep when each key was called.
type sink struct {
	server *http.Server
	url    string
	calls  atomic.Int64
	more   chan struct{} // has a value when a call came
	keep   atomic.Bool   // the times of calls

	mu    sync.Mutex // guards what follows
	times map[string][]time.Time
}

func startSink() (*sink, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("the api of the bench: %w", err)
	}
	s := &sink{url: "http://" + l.Addr().String(), more: make(chan struct{}, 1), times: map[string][]time.Time{}}
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.server.Serve(l) }() // ends with Close
	return s, nil
}

// ServeHTTP implements http.Handler.
func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	_, _ = io.Copy(io.Discard, r.Body)
	if s.keep.Load() {
		s.mu.Lock()
		s.times[r.URL.Path] = append(s.times[r.URL.Path], now)
		s.mu.Unlock()
	}
	w.WriteHeader(http.StatusOK)
	s.calls.Add(1)
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// await blocks until the api was called so often altogether, or ctx ends.
func (s *sink) await(ctx context.Context, calls int64) error {
	for s.calls.Load() < calls {
		select {
		case <-s.more:
		case <-ctx.Done():
			return fmt.Errorf("the API was called %d times instead of %d: %w", s.calls.Load(), calls, context.Cause(ctx))
		}
	}
	return nil
}

// taken gives the times of calls by path, and forgets them.
func (s *sink) taken() map[string][]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.times
	s.times = map[string][]time.Time{}
	return taken
}

func (s *sink) close() error {
	if err := s.server.Close(); err != nil {
		return fmt.Errorf("close the api of the bench: %w", err)
	}
	return nil
}
