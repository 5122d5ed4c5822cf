package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/web"
	"weir/ingest/await"
)

// TestWebhook: events are posted in order and signed. While the receiver fails, they are tried again under their ids,
// and hold nothing up. An event that the receiver refuses for good does not block the others. A redirect is not
// followed, and neither the secret nor the address is in the log.
func TestWebhook(t *testing.T) {
	t.Parallel()
	hook := web.NewHookReceiver(t)
	yaml := strings.ReplaceAll(web.HookYAML, "${env:HOOK_URL}", web.SecretFile(t, hook.URL+"/swordfish"))
	r := weirtest.ReadyRig(t, fakeapi.Options{}, yaml)
	r.Said = &program.Book{}
	r.Start()
	t.Cleanup(r.Stop)
	web.AwaitPosition(t, r.Control())
	overflow := func(id string) {
		t.Helper()
		if a := r.Producer().Submit("weir.jobs.pay.k", nil, map[string]string{"Nats-Msg-Id": id}); a.Error == nil || a.Error.Code != 429 {
			t.Fatalf("%s: %+v", id, a)
		}
	}
	r.CLI().Must("pause", "pay") // an event that the webhook does not want: its job waits
	if a := r.Producer().Submit("weir.jobs.pay.k", nil, nil); a.Error != nil {
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
		text := r.HTTP().Get("/metrics")
		return strings.Contains(text, `weir_webhook_events_total{destination="webhook",outcome="sent"} 21`) && strings.Contains(text, `weir_webhook_failures_total{destination="webhook"} 2`)
	})
	r.Eventually("nothing to be behind", func() bool {
		return strings.Contains(r.HTTP().Get("/metrics"), `weir_webhook_behind{destination="webhook"} 0`)
	})
	for _, secret := range []string{"swordfish", web.HookSecret, strings.TrimPrefix(hook.URL, "http://")} {
		if strings.Contains(r.Said.String(), secret) {
			t.Errorf("the log tells %s", secret)
		}
	}
	if !strings.Contains(r.Said.String(), "the receiver does not accept posts") || !strings.Contains(r.Said.String(), "the receiver accepts posts again") {
		t.Error("the log does not tell that it was down")
	}

	// Taken out of the configuration and put back it does not hear of what happened meanwhile.
	r.Follow(yaml[strings.Index(yaml, "dead_letters:"):])
	r.Eventually("the end of the sender", func() bool {
		_, err := r.Control().Get(t.Context(), "notify.webhook.position")
		return err != nil
	})
	overflow("unheard")
	r.Follow(yaml)
	web.AwaitPosition(t, r.Control())
	overflow("heard")
	await.Until(t, "the next event", func() bool { _, n := hook.Took(`"job":"heard"`); return n == 1 })
	if _, n := hook.Took("unheard"); n != 0 {
		t.Error("it hears of what happened while it was not configured")
	}
}

// TestWebhookMended: weir posts nothing more to a receiver that answers 503 with a Retry-After of an hour, and no call
// waits for it. When the webhook's configuration has changed, weir tries at once.
func TestWebhookMended(t *testing.T) {
	t.Parallel()
	hook := web.NewHookReceiver(t)
	hook.Answers(func(int, string) int { return http.StatusServiceUnavailable })
	at := func(rate string) string {
		return strings.NewReplacer("${env:HOOK_URL}", hook.URL+"/swordfish", "1000/s", rate, "rate: 1/h, capacity: 1", "rate: 100/s, capacity: 1").Replace(web.HookYAML)
	}
	r := weirtest.NewRig(t, fakeapi.Options{}, at("1000/s"))
	web.AwaitPosition(t, r.Control())
	r.CLI().Must("pause", "pay", "k")
	for i := range 2 {
		r.Producer().Submit("weir.jobs.pay.k", nil, map[string]string{"Nats-Msg-Id": fmt.Sprint(i)})
	}
	await.Until(t, "a post that is refused", func() bool { return len(hook.Tried()) == 1 })
	for i := range 20 {
		if a := r.Producer().Submit(fmt.Sprintf("weir.jobs.pay.k%d", i), nil, nil); a.Error != nil {
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

// TestDestinations: each destination has its format and its groups, and one that fails holds up no other. A text says
// how many overflows there were, and every one of them is in a text. `weir notify test` posts to each, in its format,
// and says which receiver does not accept it.
func TestDestinations(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var texts []string
	chat := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		var m struct{ Text string }
		if err := json.NewDecoder(q.Body).Decode(&m); err != nil || q.Header.Get("Content-Type") != "application/json" || q.Header.Get("webhook-signature") != "" {
			t.Errorf("%v: a post with %v", err, q.Header)
		}
		mu.Lock()
		defer mu.Unlock()
		texts = append(texts, strings.Split(m.Text, "\n")...)
	}))
	t.Cleanup(chat.Close)
	said := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(texts)
	}
	up, down := web.NewHookReceiver(t), web.NewHookReceiver(t)
	down.Answers(func(int, string) int { return http.StatusInternalServerError })
	r := weirtest.NewRig(t, fakeapi.Options{}, `
notifications:
  webhook: {url: "`+up.URL+`/swordfish", secret: "${env:HOOK_SECRET}", events: [throttled], rate: 1000/s}
  broken: {url: "`+down.URL+`/swordfish", secret: "${env:HOOK_SECRET}", events: [throttled], rate: 1000/s}
  chat: {url: "`+web.SecretFile(t, chat.URL)+`", format: slack, group: 2s, events: [throttled]}
apis:
  sms:
    url: %s
    bucket: {rate: 1/h, capacity: 1}
`)
	for _, name := range []string{"webhook", "broken", "chat"} {
		await.Until(t, "a sender to "+name, func() bool {
			_, err := r.Control().Get(t.Context(), "notify."+name+".position")
			return err == nil
		})
	}
	r.CLI().Must("pause", "sms")
	const overflows = 40
	for range overflows + 1 {
		r.Producer().Submit("weir.jobs.sms.+43999", nil, nil)
	}
	await.Until(t, "all events at the receiver that works", func() bool { _, n := up.Took("weir.throttled.v1"); return n == overflows })
	several := 0
	await.Until(t, "all overflows in texts", func() bool {
		sum := 0
		several = 0
		for _, text := range said() {
			n := 0
			if _, err := fmt.Sscanf(text, "%d overflow", &n); err != nil || !strings.Contains(text, " of `sms/+43999`") {
				t.Fatalf("a text says %q", text)
			}
			if n > 1 {
				several++
			}
			sum += n
		}
		return sum == overflows
	})
	if n := len(said()); several == 0 || n > overflows/2 {
		t.Errorf("%d texts of %d overflows", n, overflows)
	}
	if len(down.Tried()) == 0 {
		t.Error("the broken receiver was not asked")
	}

	out, code := r.CLI().Run("notify", "test")
	if code != 1 || !strings.Contains(out, "broken: answered 500") || !strings.Contains(out, "chat: accepted") || !strings.Contains(out, "webhook: accepted") {
		t.Errorf("the test ends with %d: %s", code, out)
	}
	if out, code = r.CLI().Run("notify", "test", "chat"); code != 0 || strings.Contains(out, "webhook") {
		t.Errorf("the test of one ends with %d: %s", code, out)
	}
	if _, code = r.CLI().Run("notify", "test", "nowhere"); code != 3 {
		t.Errorf("the test of none ends with %d", code)
	}
	if _, n := up.Took("weir.test.v1"); n != 1 {
		t.Errorf("%d tests arrived", n)
	}
	if all := strings.Join(said(), "\n"); strings.Count(all, "A test of weir by") != 2 {
		t.Errorf("the chat says\n%s", all)
	}
}
