package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir-torture/internal/judge"
	"weir/cmd/weir-torture/internal/plan"
)

// receiver receives the callbacks of the api. It is safe for concurrent use.
type receiver struct {
	server   *http.Server
	listener net.Listener

	mu      sync.Mutex // guards the fields below
	taken   judge.Posts
	tried   int
	refused int
	last    time.Time // when the last post came
}

// newReceiver starts a receiver. The caller must close it.
func newReceiver() (*receiver, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("receive callbacks: %w", err)
	}
	r := &receiver{listener: listener, taken: judge.Posts{}, last: time.Now()}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	go func() { _ = r.server.Serve(listener) }() // until close
	return r, nil
}

func (r *receiver) close() error { return r.server.Close() }

// url returns the address to which weir posts ends.
func (r *receiver) url() string { return "http://" + r.listener.Addr().String() + "/ends" }

// ServeHTTP takes a post, or refuses it.
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	var post struct {
		Type string `json:"type"`
		Data struct {
			Job string `json:"job"`
		} `json:"data"`
	}
	body, err := io.ReadAll(q.Body)
	if err != nil || json.Unmarshal(body, &post) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = time.Now()
	if r.tried++; r.tried%plan.CallbackRefuses == 0 {
		r.refused++
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	of := judge.EndOf{Kind: post.Type, Job: post.Data.Job}
	if r.taken[of] == nil {
		r.taken[of] = map[string]int{}
	}
	r.taken[of][q.Header.Get("webhook-id")]++
}

// awaitEnds waits until every end was posted, or no post has come for PostsWithin.
func (s *stage) awaitEnds(ctx context.Context) error {
	if s.receiver == nil {
		return nil
	}
	nc, js, err := s.servers.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	s.record.talk("the last ends are posted")
	for {
		ends, err := readEnds(ctx, js)
		if err != nil {
			return err
		}
		taken, last := s.receiver.posted()
		if judge.Missing(ends, taken) == 0 || time.Since(last) > plan.PostsWithin {
			return nil
		}
		if !stream.Sleep(ctx, 500*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// posted returns the posts taken so far, and when the last post came.
func (r *receiver) posted() (judge.Posts, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := judge.Posts{}
	for of, ids := range r.taken {
		taken[of] = maps.Clone(ids)
	}
	return taken, r.last
}

// testify adds the posts to the evidence. A nil receiver adds nothing.
func (r *receiver) testify(e *judge.Evidence) {
	if r == nil {
		return
	}
	e.Posted, _ = r.posted()
	r.mu.Lock()
	defer r.mu.Unlock()
	e.PostsRefused = r.refused
}
