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
	"weir/ingest/await"
)

const callbackYAML = `
apis:
  pay:
    url: %s
    callback: {url: "${env:CALLBACK_URL}", secret: "${env:HOOK_SECRET}", rate: 200/s}
    bucket: {rate: 1000/s, capacity: 1000}
`

// TestCallbackAfterKill: over a kill -9 in the middle of posts each end arrives at least once, always under the same
// id, and few arrive twice: what was under way, and what was posted since the position was noted.
func TestCallbackAfterKill(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	hook := weirtest.NewHookReceiver(t)
	r := weirtest.NewKillRig(t, fakeapi.Options{}, callbackYAML, "CALLBACK_URL="+hook.URL+"/swordfish", "HOOK_SECRET="+weirtest.HookSecret)
	await.Until(t, "weir", r.NC.IsConnected)
	const jobs = 600
	job := func(i int) string { return fmt.Sprintf("job-%d-", i) }
	named := func(body string) string {
		_, rest, _ := strings.Cut(body, `"job":"`)
		name, _, _ := strings.Cut(rest, `"`)
		return name
	}
	reached, killed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	hook.Answers(func(n int, _ string) int {
		if n == jobs/2 {
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
	for i := range jobs {
		r.Publish(t.Context(), fmt.Sprintf("weir.jobs.pay.k%d", i%20), job(i), nil)
	}
	await.Receive(t, "the post that the kill comes in", reached)
	r.Proc.Kill()
	close(killed)
	r.Start()
	seen := func() map[string]map[string]bool { // the ids of each job's posts
		of := map[string]map[string]bool{}
		hook.Each(func(id, body string) {
			name := named(body)
			if of[name] == nil {
				of[name] = map[string]bool{}
			}
			of[name][id] = true
		})
		return of
	}
	await.Until(t, "each end", func() bool { return len(seen()) == jobs })
	for name, ids := range seen() {
		if len(ids) != 1 {
			t.Errorf("%s was posted under the ids %v", name, ids)
		}
	}
	const rate, underWay, noted = 200, 32, 2 // seconds between notes, on a busy machine
	if n := len(hook.Tried()); n > jobs+noted*rate+underWay {
		t.Errorf("%d posts of %d ends, and one kill", n, jobs)
	}
}
