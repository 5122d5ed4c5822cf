package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/ingest/await"
)

// TestWebhook: events are posted in order and signed. While the receiver fails, they are tried again under their ids,
// and hold nothing up. An event that the receiver refuses for good does not block the others. A redirect is not
// followed, and neither the secret nor the address is in the log.
func TestWebhook(t *testing.T) {
	hook := weirtest.NewHookReceiver(t)
	t.Setenv("HOOK_URL", hook.URL+"/swordfish")
	t.Setenv("HOOK_SECRET", weirtest.HookSecret)
	r := weirtest.ReadyRig(t, fakeapi.Options{}, weirtest.HookYAML)
	r.Said = &weirtest.Book{}
	r.Start()
	t.Cleanup(r.Stop)
	weirtest.AwaitPosition(t, r.Control())
	overflow := func(id string) {
		t.Helper()
		if a := r.Submit("weir.jobs.pay.k", nil, map[string]string{"Nats-Msg-Id": id}); a.Error == nil || a.Error.Code != 429 {
			t.Fatalf("%s: %+v", id, a)
		}
	}
	r.Must("pause", "pay") // an event that the webhook does not want: its job waits
	if a := r.Submit("weir.jobs.pay.k", nil, nil); a.Error != nil {
		t.Fatalf("%+v", a)
	}
	overflow("first")
	await.Until(t, "the first event", func() bool { _, n := hook.Took(`"job":"first"`); return n == 1 })

	hook.Answers(func(n int, _ string) int {
		return []int{http.StatusInternalServerError, http.StatusFound, http.StatusOK}[min(n-2, 2)]
	})
	for i := range 20 { // they are refused at once, whatever the receiver does
		overflow(fmt.Sprintf("while-it-is-down-%d", i))
	}
	await.Until(t, "all events", func() bool { _, n := hook.Took("while-it-is-down-"); return n == 20 })
	if tries := hook.Tried(); tries[1] != tries[2] || tries[2] != tries[3] || tries[0] == tries[1] {
		t.Errorf("tried as %v", tries[:4])
	}
	for i := range 20 {
		if want := fmt.Sprintf(`"job":"while-it-is-down-%d"`, i); !strings.Contains(hook.Bodies[i+1], want) {
			t.Errorf("at place %d is %s, want %s", i, hook.Bodies[i+1], want)
		}
	}
	r.Eventually("them to be counted", func() bool {
		text := r.Get("/metrics")
		return strings.Contains(text, `weir_webhook_events_total{outcome="sent"} 21`) && strings.Contains(text, "weir_webhook_failures_total 2")
	})
	r.Eventually("nothing to be behind", func() bool { return strings.Contains(r.Get("/metrics"), "weir_webhook_behind 0") })
	for _, secret := range []string{"swordfish", weirtest.HookSecret, strings.TrimPrefix(hook.URL, "http://")} {
		if strings.Contains(r.Said.String(), secret) {
			t.Errorf("the log tells %s", secret)
		}
	}
	if !strings.Contains(r.Said.String(), "the webhook does not accept events") || !strings.Contains(r.Said.String(), "the webhook accepts events again") {
		t.Error("the log does not tell that it was down")
	}

	// Taken out of the configuration and put back it does not hear of what happened meanwhile.
	r.Follow(weirtest.HookYAML[strings.Index(weirtest.HookYAML, "dead_letters:"):])
	r.Eventually("the end of the sender", func() bool {
		_, err := r.Control().Get(t.Context(), "webhook.position")
		return err != nil
	})
	overflow("unheard")
	r.Follow(weirtest.HookYAML)
	weirtest.AwaitPosition(t, r.Control())
	overflow("heard")
	await.Until(t, "the next event", func() bool { _, n := hook.Took(`"job":"heard"`); return n == 1 })
	if _, n := hook.Took("unheard"); n != 0 {
		t.Error("it hears of what happened while it was not configured")
	}
}

// TestWebhookMended: a receiver that asks to be left alone for an hour is, and no call waits for it; a webhook that is configured anew is tried
// at once.
func TestWebhookMended(t *testing.T) {
	hook := weirtest.NewHookReceiver(t)
	t.Setenv("HOOK_SECRET", weirtest.HookSecret)
	hook.Answers(func(int, string) int { return http.StatusServiceUnavailable })
	at := func(rate string) string {
		return strings.NewReplacer("${env:HOOK_URL}", hook.URL+"/swordfish", "1000/s", rate, "rate: 1/h, capacity: 1", "rate: 100/s, capacity: 1").Replace(weirtest.HookYAML)
	}
	r := weirtest.NewRig(t, fakeapi.Options{}, at("1000/s"))
	weirtest.AwaitPosition(t, r.Control())
	r.Must("pause", "pay", "k")
	for i := range 2 {
		r.Submit("weir.jobs.pay.k", nil, map[string]string{"Nats-Msg-Id": fmt.Sprint(i)})
	}
	await.Until(t, "a post that is refused", func() bool { return len(hook.Tried()) == 1 })
	for i := range 20 {
		if a := r.Submit(fmt.Sprintf("weir.jobs.pay.k%d", i), nil, nil); a.Error != nil {
			t.Fatalf("%+v", a)
		}
	}
	r.Eventually("the calls", func() bool { return len(r.API.All()) == 20 })
	if n := len(hook.Tried()); n != 1 {
		t.Errorf("it was posted to %d times within its hour", n)
	}
	hook.Answers(func(int, string) int { return http.StatusOK })
	r.Follow(at("999/s"))
	await.Until(t, "the event", func() bool { _, n := hook.Took(`"job":"1"`); return n == 1 })
}
