package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/connect"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// hookSecret is what the posts of these tests are signed with.
const hookSecret = "whsec_c3dvcmRmaXNoLXN3b3JkZmlzaC1zd29yZGZpc2g="

// hookReceiver is somebody's webhook.
type hookReceiver struct {
	*httptest.Server
	t *testing.T

	mu     sync.Mutex // of what follows
	answer func(n int, body string) int
	ids    []string // of the posts that were answered with 200, in order
	bodies []string
	tries  []string // ids of all posts
}

func newHookReceiver(t *testing.T) *hookReceiver {
	t.Helper()
	verifier, err := standardwebhooks.NewWebhook(hookSecret)
	if err != nil {
		t.Fatal(err)
	}
	r := &hookReceiver{t: t, answer: func(int, string) int { return http.StatusOK }}
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
			r.ids, r.bodies = append(r.ids, id), append(r.bodies, string(body))
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

func (r *hookReceiver) answers(with func(n int, body string) int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = with
}

// took are the ids of the posts that were taken, and how many of their bodies hold a text.
func (r *hookReceiver) took(text string) (ids []string, with int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.bodies {
		if strings.Contains(b, text) {
			with++
		}
	}
	return slices.Clone(r.ids), with
}

func (r *hookReceiver) tried() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.tries)
}

const hookYAML = `
notifications:
  webhook: {url: "${env:HOOK_URL}", secret: "${env:HOOK_SECRET}", events: [throttled], rate: 1000/s}
dead_letters: {max_bytes: 64MiB}
apis:
  pay:
    url: %s
    bucket: {rate: 1/h, capacity: 1}
`

// awaitPosition waits until somebody posts events.
func awaitPosition(t *testing.T, kv jetstream.KeyValue) {
	t.Helper()
	await.Until(t, "a sender", func() bool {
		_, err := kv.Get(t.Context(), "webhook.position")
		return err == nil
	})
}

// TestWebhook: events are posted in order and signed, tried again under their ids while the receiver fails, and hold nothing up meanwhile.
// What it refuses for good does not hold up the others. A redirect is not followed, and neither secret nor address is in the log.
func TestWebhook(t *testing.T) {
	hook := newHookReceiver(t)
	t.Setenv("HOOK_URL", hook.URL+"/swordfish")
	t.Setenv("HOOK_SECRET", hookSecret)
	r := readyRig(t, fakeapi.Options{}, hookYAML)
	r.said = &book{}
	r.start()
	t.Cleanup(r.stop)
	awaitPosition(t, r.control())
	overflow := func(id string) {
		t.Helper()
		if a := r.submit("weir.jobs.pay.k", nil, map[string]string{"Nats-Msg-Id": id}); a.Error == nil || a.Error.Code != 429 {
			t.Fatalf("%s: %+v", id, a)
		}
	}
	r.must("pause", "pay") // an event that the webhook does not want: its job waits
	if a := r.submit("weir.jobs.pay.k", nil, nil); a.Error != nil {
		t.Fatalf("%+v", a)
	}
	overflow("first")
	await.Until(t, "the first event", func() bool { _, n := hook.took(`"job":"first"`); return n == 1 })

	hook.answers(func(n int, _ string) int {
		return []int{http.StatusInternalServerError, http.StatusFound, http.StatusOK}[min(n-2, 2)]
	})
	for i := range 20 { // they are refused at once, whatever the receiver does
		overflow(fmt.Sprintf("while-it-is-down-%d", i))
	}
	await.Until(t, "all events", func() bool { _, n := hook.took("while-it-is-down-"); return n == 20 })
	if tries := hook.tried(); tries[1] != tries[2] || tries[2] != tries[3] || tries[0] == tries[1] {
		t.Errorf("tried as %v", tries[:4])
	}
	for i := range 20 {
		if want := fmt.Sprintf(`"job":"while-it-is-down-%d"`, i); !strings.Contains(hook.bodies[i+1], want) {
			t.Errorf("at place %d is %s, want %s", i, hook.bodies[i+1], want)
		}
	}
	r.eventually("them to be counted", func() bool {
		text := r.get("/metrics")
		return strings.Contains(text, `weir_webhook_events_total{outcome="sent"} 21`) && strings.Contains(text, "weir_webhook_failures_total 2")
	})
	r.eventually("nothing to be behind", func() bool { return strings.Contains(r.get("/metrics"), "weir_webhook_behind 0") })
	for _, secret := range []string{"swordfish", hookSecret, strings.TrimPrefix(hook.URL, "http://")} {
		if strings.Contains(r.said.String(), secret) {
			t.Errorf("the log tells %s", secret)
		}
	}
	if !strings.Contains(r.said.String(), "the webhook does not take events") || !strings.Contains(r.said.String(), "the webhook takes events again") {
		t.Error("the log does not tell that it was down")
	}

	// Taken out of the configuration and put back it does not hear of what happened meanwhile.
	r.follow(hookYAML[strings.Index(hookYAML, "dead_letters:"):])
	r.eventually("the end of the sender", func() bool {
		_, err := r.control().Get(t.Context(), "webhook.position")
		return err != nil
	})
	overflow("unheard")
	r.follow(hookYAML)
	awaitPosition(t, r.control())
	overflow("heard")
	await.Until(t, "the next event", func() bool { _, n := hook.took(`"job":"heard"`); return n == 1 })
	if _, n := hook.took("unheard"); n != 0 {
		t.Error("it hears of what happened while it was not configured")
	}
}

// TestWebhookMended: a receiver that asks to be left alone for an hour is, and no call waits for it; a webhook that is configured anew is tried
// at once.
func TestWebhookMended(t *testing.T) {
	hook := newHookReceiver(t)
	t.Setenv("HOOK_SECRET", hookSecret)
	hook.answers(func(int, string) int { return http.StatusServiceUnavailable })
	at := func(rate string) string {
		return strings.NewReplacer("${env:HOOK_URL}", hook.URL+"/swordfish", "1000/s", rate, "rate: 1/h, capacity: 1", "rate: 100/s, capacity: 1").Replace(hookYAML)
	}
	r := newRig(t, fakeapi.Options{}, at("1000/s"))
	awaitPosition(t, r.control())
	r.must("pause", "pay", "k")
	for i := range 2 {
		r.submit("weir.jobs.pay.k", nil, map[string]string{"Nats-Msg-Id": fmt.Sprint(i)})
	}
	await.Until(t, "a post that is refused", func() bool { return len(hook.tried()) == 1 })
	for i := range 20 {
		if a := r.submit(fmt.Sprintf("weir.jobs.pay.k%d", i), nil, nil); a.Error != nil {
			t.Fatalf("%+v", a)
		}
	}
	r.eventually("the calls", func() bool { return len(r.api.All()) == 20 })
	if n := len(hook.tried()); n != 1 {
		t.Errorf("it was posted to %d times within its hour", n)
	}
	hook.answers(func(int, string) int { return http.StatusOK })
	r.follow(at("999/s"))
	await.Until(t, "the event", func() bool { _, n := hook.took(`"job":"1"`); return n == 1 })
}

// TestWebhookAfterKill: what was not noted as posted is posted again after a kill -9, and nothing is left out.
func TestWebhookAfterKill(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	hook := newHookReceiver(t)
	r := newKillRig(t, fakeapi.Options{}, hookYAML, "HOOK_URL="+hook.URL+"/swordfish", "HOOK_SECRET="+hookSecret)
	await.Until(t, "weir", r.nc.IsConnected)
	awaitPosition(t, controlAt(t, operatorsAt(t, r.nc)))
	r.publish(t.Context(), "weir.jobs.pay.k", "called", nil)
	await.Until(t, "a call", func() bool { return len(r.api.All()) > 0 })
	await.Until(t, "a job that waits", func() bool {
		r.publish(t.Context(), "weir.jobs.pay.k", "waits", nil)
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.acks["waits"]
	})
	ids, _ := hook.took("")
	before := len(ids)
	reached, killed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	hook.answers(func(_ int, body string) int {
		if strings.Contains(body, `"job":"job-15"`) {
			once.Do(func() {
				close(reached)
				select {
				case <-killed:
				case <-time.After(patience):
				}
			})
		}
		return http.StatusOK
	})
	const jobs = 30
	for i := range jobs {
		r.publish(t.Context(), "weir.jobs.pay.k", fmt.Sprintf("job-%d", i), nil)
	}
	await.Receive(t, "the post that the kill comes in", reached)
	r.proc.kill()
	close(killed)
	r.start()
	await.Until(t, "the last event", func() bool { _, n := hook.took(fmt.Sprintf(`"job":"job-%d"`, jobs-1)); return n > 0 })
	at, seen := -1, map[string]string{}
	for i, body := range hook.bodies[before:] {
		for n := range jobs {
			if !strings.Contains(body, fmt.Sprintf(`"job":"job-%d"`, n)) {
				continue
			}
			id := hook.ids[before+i]
			if was, again := seen[body]; again && was != id {
				t.Errorf("event %s was posted again as %s", was, id)
			}
			if seen[body] = id; n > at+1 {
				t.Errorf("behind job %d stands job %d", at, n)
			}
			at = n
		}
	}
	if len(seen) != jobs {
		t.Errorf("%d of %d events were posted", len(seen), jobs)
	}
	if _, n := hook.took(`"job":"job-15"`); n < 2 {
		t.Errorf("what was being posted was posted %d times", n)
	}
}

func controlAt(t *testing.T, js jetstream.JetStream) jetstream.KeyValue {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), connect.ControlBucket)
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

// TestWebhookOfTwoReplicas: one of them posts the events, each once and in order; when it is killed the other goes on behind the last that
// was taken, and posts at most that one again.
func TestWebhookOfTwoReplicas(t *testing.T) {
	t.Parallel()
	hook := newHookReceiver(t)
	r := newReplicas(t, oneServer(t), 2, hookYAML, "HOOK_URL="+hook.URL+"/swordfish", "HOOK_SECRET="+hookSecret)
	js, err := jetstream.New(r.nc)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), "weir_control")
	if err != nil {
		t.Fatal(err)
	}
	awaitPosition(t, kv)
	jobs := 0
	throttle := func(n int) {
		for range n { // again where the replica was killed that the server gave a job to
			r.publish(t.Context(), "weir.jobs.pay.k", fmt.Sprintf("job-%d", jobs), []byte("{}"))
			jobs++
		}
	}
	// posted waits until each letter's event was taken.
	posted := func() int {
		events := r.letters()
		await.Until(t, "the posts", func() bool {
			ids, _ := hook.took("")
			slices.Sort(ids)
			return len(slices.Compact(ids)) >= events
		})
		return events
	}
	throttle(42) // one is called, one waits
	if n := posted(); len(hook.tried()) != n {
		t.Errorf("%d posts of %d events by two replicas", len(hook.tried()), n)
	}
	held, err := kv.Get(t.Context(), "webhook.lease")
	if err != nil {
		t.Fatal(err)
	}
	sender := 0
	if strings.Contains(string(held.Value()), "replica-1") {
		sender = 1
	}
	r.procs[sender].kill()
	throttle(20)
	if n := posted(); len(hook.tried()) > n+1 { // a kill between a post and its note posts that one again
		t.Errorf("%d posts of %d events, and one kill", len(hook.tried()), n)
	}
}
