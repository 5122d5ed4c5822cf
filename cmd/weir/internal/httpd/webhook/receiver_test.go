package webhook

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const testSecret = "whsec_c3dvcmRmaXNoLXN3b3JkZmlzaC1zd29yZGZpc2g="

// posted is a post as its receiver decodes it.
type posted struct {
	Type      string
	Timestamp time.Time
	Data      struct {
		API, Key, Job, Outcome, Body, Detail, Billed, Price string
		Base64                                              string `json:"body_base64"`
		ContentType                                         string `json:"content_type"`
		FinishedAt                                          string `json:"finished_at"`
		Seq                                                 uint64
		Status, Attempts, Calls, Redrives                   int
		Cut                                                 bool
		Answer                                              *struct{ Body string }
	}
	id string
}

// receiver receives the posts of the callbacks of two apis.
type receiver struct {
	*httptest.Server

	mu     sync.Mutex // guards the fields below
	answer func(p posted) int
	tried  map[string]int // by id
	taken  []posted
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	verifier, err := standardwebhooks.NewWebhook(testSecret)
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{answer: func(posted) int { return http.StatusOK }, tried: map[string]int{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		p := posted{id: q.Header.Get("webhook-id")}
		body, err := io.ReadAll(q.Body)
		if err == nil {
			err = verifier.Verify(body, q.Header)
		}
		if err == nil {
			err = json.Unmarshal(body, &p)
		}
		if err != nil || q.Header.Get("Content-Type") != "application/json" || strings.Contains(p.id, ".") {
			t.Errorf("a post with %v: %v: %.200s", q.Header, err, body)
		}
		r.mu.Lock()
		r.tried[p.id]++
		answer := r.answer
		r.mu.Unlock()
		status := answer(p)
		if status == http.StatusOK {
			r.mu.Lock()
			r.taken = append(r.taken, p)
			r.mu.Unlock()
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(r.Close)
	return r
}

// answers sets how the receiver answers.
func (r *receiver) answers(how func(p posted) int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = how
}

// took returns the accepted posts of an api, by job.
func (r *receiver) took(api string) map[string]posted {
	r.mu.Lock()
	defer r.mu.Unlock()
	jobs := map[string]posted{}
	for _, p := range r.taken {
		if p.Data.API == api {
			jobs[p.Data.Job] = p
		}
	}
	return jobs
}

// tries returns how often each id was posted.
func (r *receiver) tries() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.tried)
}
