package soak

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/servers"
	"weir/cmd/weir/weirtest/web"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
)

// TestWebhookAfterKill: what was not noted as posted is posted again after a kill -9, and nothing is left out.
func TestWebhookAfterKill(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	hook := web.NewHookReceiver(t)
	r := weirtest.NewKillRig(t, fakeapi.Options{}, web.HookYAML, "HOOK_URL="+hook.URL+"/swordfish", "HOOK_SECRET="+web.HookSecret)
	await.Until(t, "weir", r.NC.IsConnected)
	web.AwaitPosition(t, controlAt(t, servers.OperatorsAt(t, r.NC)))
	r.Publish(t.Context(), "weir.jobs.pay.k", "called", nil)
	await.Until(t, "a call", func() bool { return len(r.API.All()) > 0 })
	await.Until(t, "a job that waits", func() bool {
		r.Publish(t.Context(), "weir.jobs.pay.k", "waits", nil)
		r.Mu.Lock()
		defer r.Mu.Unlock()
		return r.Acks["waits"]
	})
	ids, _ := hook.Took("")
	before := len(ids)
	reached, killed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	hook.Answers(func(_ int, body string) int {
		if strings.Contains(body, `"job":"job-15"`) {
			once.Do(func() {
				close(reached)
				select {
				case <-killed:
				case <-time.After(weirtest.Patience):
				}
			})
		}
		return http.StatusOK
	})
	const jobs = 30
	for i := range jobs {
		r.Publish(t.Context(), "weir.jobs.pay.k", fmt.Sprintf("job-%d", i), nil)
	}
	await.Receive(t, "the post that the kill comes in", reached)
	r.Proc.Kill()
	close(killed)
	r.Start()
	await.Until(t, "the last event", func() bool { _, n := hook.Took(fmt.Sprintf(`"job":"job-%d"`, jobs-1)); return n > 0 })
	at, seen := -1, map[string]string{}
	for i, body := range hook.Bodies[before:] {
		for n := range jobs {
			if !strings.Contains(body, fmt.Sprintf(`"job":"job-%d"`, n)) {
				continue
			}
			id := hook.IDs[before+i]
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
	if _, n := hook.Took(`"job":"job-15"`); n < 2 {
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
	hook := web.NewHookReceiver(t)
	r := weirtest.NewReplicas(t, servers.OneServer(t), 2, web.HookYAML, "HOOK_URL="+hook.URL+"/swordfish", "HOOK_SECRET="+web.HookSecret)
	js, err := jetstream.New(r.NC)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), "weir_control")
	if err != nil {
		t.Fatal(err)
	}
	web.AwaitPosition(t, kv)
	jobs := 0
	throttle := func(n int) {
		for range n { // again where the replica was killed that the server gave a job to
			r.Publish(t.Context(), "weir.jobs.pay.k", fmt.Sprintf("job-%d", jobs), []byte("{}"))
			jobs++
		}
	}
	// posted waits until each letter's event was taken.
	posted := func() int {
		events := r.Letters()
		await.Until(t, "the posts", func() bool {
			ids, _ := hook.Took("")
			slices.Sort(ids)
			return len(slices.Compact(ids)) >= events
		})
		return events
	}
	throttle(42) // one is called, one waits
	if n := posted(); len(hook.Tried()) != n {
		t.Errorf("%d posts of %d events by two replicas", len(hook.Tried()), n)
	}
	held, err := kv.Get(t.Context(), "notify.webhook.lease")
	if err != nil {
		t.Fatal(err)
	}
	sender := 0
	if strings.Contains(string(held.Value()), "replica-1") {
		sender = 1
	}
	r.Procs[sender].Kill()
	throttle(20)
	if n := posted(); len(hook.Tried()) > n+1 { // a kill between a post and its note posts that one again
		t.Errorf("%d posts of %d events, and one kill", len(hook.Tried()), n)
	}
}
