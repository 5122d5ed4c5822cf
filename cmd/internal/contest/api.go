package contest

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
	"slices"
	"strconv"
	"sync"
	"time"
)

// Calls says when the API was called in a round.
type Calls struct {
	Times    []int64  `json:"times"`        // when each job was first called, by its number, in Unix nanoseconds; 0: never
	By       []string `json:"by,omitempty"` // the CallerHeader of each job's first call; nil if no call had one
	Called   int      `json:"called"`       // jobs that were called
	Repeated int      `json:"repeated"`     // calls of jobs that had been called before
	Strays   int      `json:"strays"`       // calls of other paths or jobs during the round
	Began    int64    `json:"-"`            // when the producer began, in Unix nanoseconds
}

// FirstAndLast returns the times of a round's first and last call.
func (c Calls) FirstAndLast() (first, last int64) { return slices.Min(c.Times), slices.Max(c.Times) }

// CallerHeader is a header by which a call may name its caller.
const CallerHeader = "Bench-Caller"

// sheet is the API's record of a round.
type sheet struct {
	path string        // path of the calls that belong to the round
	done chan struct{} // closed when every job was called
	Calls
}

// api answers every call at once with 200 and no body, and records it. It is safe for concurrent use.
type api struct {
	mu    sync.Mutex
	sheet *sheet // nil: no round is under way
}

// Paths of the Judge's requests.
const (
	beginPath = "/-/begin"
	soFarPath = "/-/so-far"
	endPath   = "/-/end"
)

// Bounds of a call's body and of a caller's name in bytes, and of a round's jobs.
const (
	mostBody = 1 << 20
	mostName = 10
	mostJobs = 10_000_000
)

func serveAPI(ctx context.Context, s Settings) (Do, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Store)
	if err != nil {
		return nil, fmt.Errorf("the api: %w", err)
	}
	go func() { _ = (&http.Server{Handler: &api{}, ReadHeaderTimeout: callWithin}).Serve(l) }() // ends with the process
	return func(context.Context, Order) error { return errors.New("the api takes no orders") }, nil
}

// ServeHTTP implements http.Handler.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now().UnixNano()
	switch r.URL.Path {
	case beginPath:
		a.begin(w, r)
		return
	case soFarPath:
		a.soFar(w)
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
	case s == nil:
	case r.URL.Path != s.path || job < 0 || job >= len(s.Times):
		s.Strays++
	case s.Times[job] > 0:
		s.Repeated++
	default:
		s.Times[job] = now
		if by := r.Header.Get(CallerHeader); by != "" {
			if s.By == nil {
				s.By = make([]string, len(s.Times))
			}
			s.By[job] = by[:min(len(by), mostName)]
		}
		if s.Called++; s.Called == len(s.Times) {
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
	a.sheet = &sheet{path: r.URL.Query().Get("path"), done: make(chan struct{}), Calls: Calls{Times: make([]int64, jobs)}}
}

// soFar answers with the calls of the round that is under way.
func (a *api) soFar(w http.ResponseWriter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sheet == nil {
		http.Error(w, "no round", http.StatusBadRequest)
		return
	}
	_ = json.NewEncoder(w).Encode(a.sheet.Calls)
}

// end answers when every job of the round has been called, or after the time that the Judge allows.
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
	_ = json.NewEncoder(w).Encode(s.Calls)
	a.sheet = nil
}

// Judge asks the API when jobs were called.
type Judge struct {
	URL string // of the API
	PID int    // of the API's process
}

// Round begins a round of calls at path, calls publish, and waits until each job of the round has been called. It fails
// if that takes longer than within, or if a call arrives that does not belong to the round. publish returns the value
// of Calls.Began.
func (j Judge) Round(
	ctx context.Context, path string, jobs int, within time.Duration, publish func(context.Context) (began int64, err error),
) (c Calls, err error) {
	if _, err := j.ask(ctx, beginPath, url.Values{"path": {path}, "jobs": {strconv.Itoa(jobs)}}); err != nil {
		return c, err
	}
	if c.Began, err = publish(ctx); err != nil {
		return c, err
	}
	text, err := j.ask(ctx, endPath, url.Values{"within": {within.String()}})
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("the api's sheet: %w", err)
	}
	switch {
	case c.Called < jobs:
		return c, fmt.Errorf("of %d jobs %d were called within %v", jobs, c.Called, within)
	case c.Strays > 0:
		return c, fmt.Errorf("%d calls came that were not of this round", c.Strays)
	}
	return c, nil
}

// SoFar returns the calls of the round that is under way. Round's publish may call it.
func (j Judge) SoFar(ctx context.Context) (c Calls, err error) {
	text, err := j.ask(ctx, soFarPath, nil)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("the api's sheet: %w", err)
	}
	return c, nil
}

func (j Judge) ask(ctx context.Context, path string, query url.Values) ([]byte, error) {
	text, err := ask(ctx, http.DefaultClient, http.MethodGet, j.URL+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("ask the api: %w", err)
	}
	return text, nil
}
