package jobs

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/ops/status"
	"weir/cmd/weir/weirtest"
	"weir/ingest/await"
)

const callbackYAML = `
apis:
  pay:
    url: %s
    callback: {url: "${env:CALLBACK_URL}", secret: "${env:HOOK_SECRET}", rate: 1000/s}
    bucket: {rate: 500/s, capacity: 1000}
`

// callbackOf returns what the status says of the callback of pay.
func callbackOf(t *testing.T, r *weirtest.Rig) (s status.Status, pay status.API) {
	t.Helper()
	out, _ := r.Command("status", "--json")
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	for _, a := range s.APIs {
		if a.API == "pay" && a.Callback != nil {
			return s, *a
		}
	}
	t.Fatalf("the status has no callback of pay: %s", out)
	return s, pay
}

// TestCallback: every end of an api's jobs is posted, signed and under an id of its own, from the first job on. While
// the receiver is down, redirects or refuses all, calls go on, the status says since when it fails and how many ends
// wait, and each of them arrives once when it is back. Neither the secret nor the address is in the log.
func TestCallback(t *testing.T) {
	hook := weirtest.NewHookReceiver(t)
	t.Setenv("CALLBACK_URL", hook.URL+"/swordfish")
	t.Setenv("HOOK_SECRET", weirtest.HookSecret)
	r := weirtest.ReadyRig(t, fakeapi.Options{}, callbackYAML)
	r.Said = &weirtest.Book{}
	r.Start()
	t.Cleanup(r.Stop)
	submit := func(job, query string) {
		t.Helper()
		if a := r.Submit("weir.jobs.pay."+job, nil, map[string]string{"Nats-Msg-Id": job, "Weir-Query": query}); a.Error != nil {
			t.Fatalf("%s: %+v", job, a.Error)
		}
	}
	took := func(what, text string, want int) {
		t.Helper()
		await.Until(t, what, func() bool { _, n := hook.Took(text); return n >= want })
	}
	submit("first", "") // no time passes between the start and the first end
	took("the first end", `"job":"first"`, 1)
	submit("bad", "fake-status=400")
	took("the end of a job that is refused", `"type":"job.dead"`, 1)
	if _, n := hook.Took(`"outcome":"rejected"`); n != 1 {
		t.Errorf("the dead job is posted as %s", hook.Bodies)
	}

	hook.Answers(func(n int, _ string) int {
		return []int{http.StatusFound, http.StatusInternalServerError, http.StatusBadRequest}[n%3]
	})
	const ended = 100
	for i := range ended {
		submit(fmt.Sprintf("down-%d", i), "")
	}
	r.Eventually("the calls", func() bool { return len(r.API.All()) == ended+2 && r.Waiting("pay") == 0 })
	r.Eventually("the status to count what waits", func() bool {
		_, pay := callbackOf(t, r)
		return pay.Callback.Behind == ended && !pay.Callback.Failing.IsZero() && strings.HasPrefix(pay.Callback.Why, "answered ") && !pay.Callback.Oldest.IsZero()
	})
	if s, _ := callbackOf(t, r); !s.Healthy {
		t.Errorf("a receiver that is down is a problem: %+v", s.Problems)
	}
	if out := r.Must("status"); !strings.Contains(out, "CALLBACK OF") || !strings.Contains(out, "fails since") {
		t.Errorf("the status says\n%s", out)
	}
	if out, code := r.Command("notify", "test", "pay/callback"); code != 1 || !strings.Contains(out, "pay/callback: answered ") {
		t.Errorf("the test of the receiver ends with %d: %s", code, out)
	}
	if !strings.Contains(r.Get("/metrics"), fmt.Sprintf(`weir_callback_behind{api="pay",end="done"} %d`, ended)) {
		t.Error("the metric does not say how many wait")
	}

	hook.Answers(func(int, string) int { return http.StatusOK })
	took("all ends", `"job":"down-`, ended)
	r.Eventually("nothing to be behind", func() bool {
		_, pay := callbackOf(t, r)
		return pay.Callback.Behind == 0 && pay.Callback.Failing.IsZero()
	})
	ids, n := hook.Took("")
	if slices.Sort(ids); len(slices.Compact(ids)) != n || n != ended+2 {
		t.Errorf("%d ends were accepted under %d ids, want %d", n, len(slices.Compact(ids)), ended+2)
	}
	if out, code := r.Command("notify", "test"); code != 0 || !strings.Contains(out, "pay/callback: accepted") {
		t.Errorf("the test of all receivers ends with %d: %s", code, out)
	}
	for _, secret := range []string{"swordfish", weirtest.HookSecret, strings.TrimPrefix(hook.URL, "http://")} {
		if strings.Contains(r.Said.String(), secret) {
			t.Errorf("the log tells %s", secret)
		}
	}

	// Taken out of the configuration and put back it does not hear of what ended meanwhile, but of all that ends then.
	r.Follow("apis: {pay: {url: \"%s\", bucket: {rate: 500/s, capacity: 1000}}}\n")
	r.Eventually("the end of the sender", func() bool {
		_, done := r.Control().Get(t.Context(), "callback.pay.done.position")
		_, dead := r.Control().Get(t.Context(), "callback.pay.dead.position")
		return done != nil && dead != nil
	})
	submit("unheard", "")
	r.Eventually("its end", func() bool { return len(r.Results("pay", "unheard")) == 1 })
	r.Follow(callbackYAML)
	submit("heard", "")
	took("the next end", `"job":"heard"`, 1)
	if _, n := hook.Took(`"job":"unheard"`); n != 0 {
		t.Error("it hears of what ended while it was not configured")
	}
}

// TestCallbackRestart: what was under way when weir stopped is posted by the next start, and nothing that was accepted
// is posted again after an orderly stop.
func TestCallbackRestart(t *testing.T) {
	hook := weirtest.NewHookReceiver(t)
	hook.Answers(func(_ int, body string) int {
		if strings.Contains(body, `"job":"stuck"`) {
			return http.StatusInternalServerError
		}
		return http.StatusOK
	})
	t.Setenv("CALLBACK_URL", hook.URL+"/swordfish")
	t.Setenv("HOOK_SECRET", weirtest.HookSecret)
	r := weirtest.NewRig(t, fakeapi.Options{}, callbackYAML)
	for _, job := range []string{"stuck", "a", "b", "c"} {
		if a := r.Submit("weir.jobs.pay."+job, nil, map[string]string{"Nats-Msg-Id": job}); a.Error != nil {
			t.Fatalf("%+v", a)
		}
	}
	await.Until(t, "the others", func() bool { _, n := hook.Took(""); return n == 3 })
	await.Until(t, "a try of the one that fails", func() bool { return len(hook.Tried()) >= 4 })
	r.Eventually("weir to have read the answers", func() bool {
		return strings.Contains(r.Get("/metrics"), `weir_callback_ends_total{api="pay",end="done",outcome="sent"} 3`)
	})
	r.Stop()
	hook.Answers(func(int, string) int { return http.StatusOK })
	r.Start()
	await.Until(t, "the one that failed", func() bool { _, n := hook.Took(`"job":"stuck"`); return n == 1 })
	if a := r.Submit("weir.jobs.pay.k", nil, map[string]string{"Nats-Msg-Id": "last"}); a.Error != nil {
		t.Fatalf("%+v", a)
	}
	await.Until(t, "the last", func() bool { _, n := hook.Took(`"job":"last"`); return n == 1 })
	if _, n := hook.Took(""); n != 5 {
		t.Errorf("%d posts of 5 ends were accepted", n)
	}
}
