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
)

// The callback of the api.
const (
	callbackRate     = 200 // posts a second of each type
	callbackRefuses  = 10  // the receiver refuses one of this many posts
	callbackVariable = "TORTURE_CALLBACK_SECRET"
	callbackSecret   = "whsec_c3dvcmRmaXNoLXN3b3JkZmlzaC1zd29yZGZpc2g="
	callbackAddress  = "TORTURE_CALLBACK_URL"

	postsWithin = 45 * time.Second // the longest wait for the next post, at the end of a run
)

// The types of posts.
const (
	postDone = "job.done"
	postDead = "job.dead"
)

// endOf identifies the ends of one type that one job has.
type endOf struct{ kind, job string }

// posts are the posts that a receiver has accepted: how often each came, by the job's end and the post's id.
type posts map[endOf]map[string]int

// receiver receives the callbacks of the api. It is safe for concurrent use.
type receiver struct {
	server   *http.Server
	listener net.Listener

	mu      sync.Mutex // guards the fields below
	taken   posts
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
	r := &receiver{listener: listener, taken: posts{}, last: time.Now()}
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
	if r.tried++; r.tried%callbackRefuses == 0 {
		r.refused++
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	of := endOf{post.Type, post.Data.Job}
	if r.taken[of] == nil {
		r.taken[of] = map[string]int{}
	}
	r.taken[of][q.Header.Get("webhook-id")]++
}

// awaitEnds waits until every end was posted, or no post has come for postsWithin.
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
		if missing(ends, taken) == 0 || time.Since(last) > postsWithin {
			return nil
		}
		if !stream.Sleep(ctx, 500*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// posted returns the posts taken so far, and when the last post came.
func (r *receiver) posted() (posts, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := posts{}
	for of, ids := range r.taken {
		taken[of] = maps.Clone(ids)
	}
	return taken, r.last
}

// testify adds the posts to the evidence. A nil receiver adds nothing.
func (r *receiver) testify(e *Evidence) {
	if r == nil {
		return
	}
	e.Posted, _ = r.posted()
	r.mu.Lock()
	defer r.mu.Unlock()
	e.PostsRefused = r.refused
}

// count returns how many ends of each type each job has.
func (e *Ends) count() map[endOf]int {
	ends := map[endOf]int{}
	for job, n := range e.Results {
		ends[endOf{postDone, job}] += n
	}
	for _, l := range e.Letters {
		ends[endOf{postDead, l.Job}]++
	}
	return ends
}

// missing returns how many ends lack a post with an id of its own.
func missing(ends *Ends, taken posts) (n int) {
	for of, there := range ends.count() {
		n += max(0, there-len(taken[of]))
	}
	return n
}

// judgeCallbacks checks that each end was posted under an id of its own, and that nothing else was posted.
func (e *Evidence) judgeCallbacks(r *Report) {
	if e.Posted == nil {
		return
	}
	r.Callbacks, r.PostsRefused = true, e.PostsRefused
	ends, owner := e.Ends.count(), map[string]endOf{}
	for of, there := range ends {
		if n := len(e.Posted[of]); n < there {
			r.Unposted += there - n
			r.example("not posted", fmt.Sprintf("%s of %s: %d ends, %d ids", of.kind, of.job, there, n))
		}
	}
	for of, ids := range e.Posted {
		if len(ids) > ends[of] {
			r.Misposted += len(ids) - ends[of]
			r.example("posted under several ids, or without an end",
				fmt.Sprintf("%s of %s: %d ends, %v", of.kind, of.job, ends[of], ids))
		}
		for id, times := range ids {
			r.Posted++
			r.PostedAgain += times - 1
			if other, taken := owner[id]; taken && other != of {
				r.Misposted++
				r.example("two ends under one id", id)
			}
			owner[id] = of
		}
	}
}
