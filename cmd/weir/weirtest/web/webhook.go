package web

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// HookSecret signs the posts in webhook tests.
const HookSecret = "whsec_c3dvcmRmaXNoLXN3b3JkZmlzaC1zd29yZGZpc2g="

// SecretFile returns a reference to a file that has the secret, for a configuration.
func SecretFile(t *testing.T, secret string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	return "${file:" + filepath.ToSlash(file) + "}"
}

// HookReceiver is a server that receives the posts of webhooks.
type HookReceiver struct {
	*httptest.Server
	t *testing.T

	mu     sync.Mutex // guards the fields below
	answer func(n int, body string) int
	IDs    []string // of the posts that it answered with 200, in order
	Bodies []string
	tries  []string // ids of all posts
}

func NewHookReceiver(t *testing.T) *HookReceiver {
	t.Helper()
	verifier, err := standardwebhooks.NewWebhook(HookSecret)
	if err != nil {
		t.Fatal(err)
	}
	r := &HookReceiver{t: t, answer: func(int, string) int { return http.StatusOK }}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err == nil {
			err = verifier.Verify(body, q.Header)
		}
		if err != nil || q.URL.Path != "/swordfish" {
			t.Errorf("a post to %s with %v: %v", q.URL.Path, q.Header, err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		id := q.Header.Get("webhook-id")
		r.tries = append(r.tries, id)
		status := r.answer(len(r.tries), string(body))
		if status == http.StatusOK {
			r.IDs, r.Bodies = append(r.IDs, id), append(r.Bodies, string(body))
		}
		w.Header().Set("Location", "/elsewhere")
		if status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "3600")
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *HookReceiver) Answers(with func(n int, body string) int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = with
}

// Took returns the ids of the accepted posts, and how many of their bodies contain text.
func (r *HookReceiver) Took(text string) (ids []string, with int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.Bodies {
		if strings.Contains(b, text) {
			with++
		}
	}
	return slices.Clone(r.IDs), with
}

// Each calls take for each accepted post, in order.
func (r *HookReceiver) Each(take func(id, body string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, id := range r.IDs {
		take(id, r.Bodies[i])
	}
}

func (r *HookReceiver) Tried() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.tries)
}

const HookYAML = `
notifications:
  webhook: {url: "${env:HOOK_URL}", secret: "${env:HOOK_SECRET}", events: [throttled], rate: 1000/s}
dead_letters: {max_bytes: 64MiB}
apis:
  pay:
    url: %s
    bucket: {rate: 1/h, capacity: 1}
`

// AwaitPosition waits until a replica has stored the position of the destination webhook.
func AwaitPosition(t *testing.T, kv jetstream.KeyValue) {
	t.Helper()
	await.Until(t, "a sender", func() bool {
		_, err := kv.Get(t.Context(), "notify.webhook.position")
		return err == nil
	})
}
