//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// sheet is what the api keeps of a round.
type sheet struct {
	path string // of the round's calls
	seen []bool // by the job's number
	done chan struct{}
	calls
}

// calls are what became known of a round at the api.
type calls struct {
	Times    []int64 `json:"times"`    // of each job's first call, in Unix nanoseconds, in the order that they came in
	Repeated int     `json:"repeated"` // calls for a job that had been called
	Strays   int     `json:"strays"`   // calls of others meanwhile
}

// api answers every call at once with 200 and no body. It is a process of its own.
type api struct {
	mu    sync.Mutex
	sheet *sheet
}

// Paths that the measurement asks by.
const (
	beginPath = "/-/begin"
	endPath   = "/-/end"
)

// mostBody is the largest body that the api reads.
const mostBody = 1 << 20

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now().UnixNano()
	switch r.URL.Path {
	case beginPath:
		a.begin(w, r)
		return
	case endPath:
		a.end(w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostBody))
	number, _, _ := bytes.Cut(body, []byte(" "))
	job, err2 := strconv.Atoi(string(number))
	if err := errors.Join(err, err2); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusOK)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch s := a.sheet; {
	case s == nil || r.URL.Path != s.path:
		if s != nil {
			s.Strays++
		}
	case job < 0 || job >= len(s.seen):
		s.Strays++
	case s.seen[job]:
		s.Repeated++
	default:
		s.seen[job] = true
		s.Times = append(s.Times, now)
		if len(s.Times) == len(s.seen) {
			close(s.done)
		}
	}
}

func (a *api) begin(w http.ResponseWriter, r *http.Request) {
	jobs, err := strconv.Atoi(r.URL.Query().Get("jobs"))
	if err != nil || jobs < 1 || jobs > mostJobs {
		http.Error(w, "jobs", http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sheet = &sheet{path: r.URL.Query().Get("path"), seen: make([]bool, jobs), done: make(chan struct{})}
	a.sheet.Times = make([]int64, 0, jobs)
}

// end answers when every job of the round has been called, or the time is over that the asker gives.
func (a *api) end(w http.ResponseWriter, r *http.Request) {
	within, err := time.ParseDuration(r.URL.Query().Get("within"))
	a.mu.Lock()
	s := a.sheet
	a.mu.Unlock()
	if err != nil || s == nil {
		http.Error(w, "within, or no round", http.StatusBadRequest)
		return
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-s.done:
	case <-timer.C:
	case <-r.Context().Done():
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	_ = json.NewEncoder(w).Encode(s.calls)
	a.sheet = nil
}

// serveAPI is the api's process.
func serveAPI(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("the api: %w", err)
	}
	server := &http.Server{Handler: &api{}, ReadHeaderTimeout: callWithin}
	go func() { <-ctx.Done(); _ = server.Close() }()
	if _, err := fmt.Fprintf(os.Stdout, "http://%s\n", l.Addr()); err != nil {
		return err
	}
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("the api: %w", err)
	}
	return nil
}

// judge is the measurement's side of the api.
type judge struct {
	url     string
	process *process
}

func (j *judge) begin(ctx context.Context, path string, jobs int) error {
	_, err := j.ask(ctx, beginPath+"?"+url.Values{"path": {path}, "jobs": {strconv.Itoa(jobs)}}.Encode())
	return err
}

// end waits until every job was called. That some were not is an error.
func (j *judge) end(ctx context.Context, jobs int, within time.Duration) (c calls, err error) {
	text, err := j.ask(ctx, endPath+"?"+url.Values{"within": {within.String()}}.Encode())
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("the api's sheet: %w", err)
	}
	if len(c.Times) < jobs {
		return c, fmt.Errorf("of %d jobs %d were called within %v", jobs, len(c.Times), within)
	}
	return c, nil
}

func (j *judge) ask(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, j.url+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask the api: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the api: %w", err)
	}
	text, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status)
	}
	if err != nil {
		return nil, fmt.Errorf("ask the api: %w", err)
	}
	return text, nil
}
