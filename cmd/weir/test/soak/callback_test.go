package soak

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/servers"
	"weir/cmd/weir/weirtest/web"
	"weir/ingest/await"
)

const callbackYAML = `
apis:
  pay:
    url: %s
    callback: {url: "${env:CALLBACK_URL}", secret: "${env:HOOK_SECRET}", rate: 200/s}
    bucket: {rate: 1000/s, capacity: 1000}
`

// stuckAt lets a receiver hold its n-th post up: it closes reached, and answers when killed is closed.
func stuckAt(hook *web.HookReceiver, n int) (reached, killed chan struct{}) {
	reached, killed = make(chan struct{}), make(chan struct{})
	var once sync.Once
	hook.Answers(func(tried int, _ string) int {
		if tried == n {
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
	return reached, killed
}

// posted returns the ids of each job's accepted posts, by job.
func posted(hook *web.HookReceiver) map[string]map[string]bool {
	of := map[string]map[string]bool{}
	hook.Each(func(id, body string) {
		_, rest, _ := strings.Cut(body, `"job":"`)
		name, _, _ := strings.Cut(rest, `"`)
		if of[name] == nil {
			of[name] = map[string]bool{}
		}
		of[name][id] = true
	})
	return of
}

// TestCallbackAfterKill: over a kill -9 in the middle of posts each end arrives at least once, always under the same
// id, and few arrive twice: what was under way, and what was posted since the position was noted.
func TestCallbackAfterKill(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	hook := web.NewHookReceiver(t)
	r := weirtest.NewKillRig(t, fakeapi.Options{}, callbackYAML, "CALLBACK_URL="+hook.URL+"/swordfish", "HOOK_SECRET="+web.HookSecret)
	await.Until(t, "weir", r.NC.IsConnected)
	const jobs = 600
	job := func(i int) string { return fmt.Sprintf("job-%d-", i) }
	reached, killed := stuckAt(hook, jobs/2)
	for i := range jobs {
		r.Publish(t.Context(), fmt.Sprintf("weir.jobs.pay.k%d", i%20), job(i), nil)
	}
	await.Receive(t, "the post that the kill comes in", reached)
	r.Proc.Kill()
	close(killed)
	r.Start()
	await.Until(t, "each end", func() bool { return len(posted(hook)) == jobs })
	for name, ids := range posted(hook) {
		if len(ids) != 1 {
			t.Errorf("%s was posted under the ids %v", name, ids)
		}
	}
	const rate, underWay, noted = 200, 32, 2 // seconds between notes, on a busy machine
	if n := len(hook.Tried()); n > jobs+noted*rate+underWay {
		t.Errorf("%d posts of %d ends, and one kill", n, jobs)
	}
}

// TestCallbackOfTwoReplicas: the replica that posts the ends of jobs is killed in the middle of a post. The other
// goes on: each end arrives at least once, always under the same id.
func TestCallbackOfTwoReplicas(t *testing.T) {
	t.Parallel()
	hook := web.NewHookReceiver(t)
	r := weirtest.NewReplicasOf(t, servers.OneServer(t), 2, fakeapi.Options{}, callbackYAML, "CALLBACK_URL="+hook.URL+"/swordfish", "HOOK_SECRET="+web.HookSecret)
	kv := controlAt(t, servers.JetStreamOf(t, r.NC))
	const before, after = 40, 20
	reached, killed := stuckAt(hook, before/2)
	submit := func(from, n int) {
		for i := from; i < from+n; i++ {
			r.Publish(t.Context(), fmt.Sprintf("weir.jobs.pay.k%d", i%10), fmt.Sprintf("job-%d-", i), nil)
		}
	}
	submit(0, before)
	await.Receive(t, "the post that the kill comes in", reached)
	held, err := kv.Get(t.Context(), "callback.lease")
	if err != nil {
		t.Fatal(err)
	}
	poster := 0
	if strings.Contains(string(held.Value()), "replica-1") {
		poster = 1
	}
	r.Procs[poster].Kill()
	close(killed)
	submit(before, after)
	await.Until(t, "each end", func() bool { return len(posted(hook)) == before+after })
	for name, ids := range posted(hook) {
		if len(ids) != 1 {
			t.Errorf("%s was posted under the ids %v", name, ids)
		}
	}
}
