package jobs

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/ops/jobstory"
	"weir/cmd/weir/internal/ops/status"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/web"
	"weir/dispatcher/ledger"
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
	out, _ := r.CLI().Run("status", "--json")
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
	t.Parallel()
	hook := web.NewHookReceiver(t)
	yaml := strings.ReplaceAll(callbackYAML, "${env:CALLBACK_URL}", web.SecretFile(t, hook.URL+"/swordfish"))
	r := weirtest.ReadyRig(t, fakeapi.Options{}, yaml)
	r.Said = &program.Book{}
	r.Start()
	t.Cleanup(r.Stop)
	submit := func(job, query string) {
		t.Helper()
		if a := r.Producer().Submit("weir.jobs.pay."+job, nil, map[string]string{"Nats-Msg-Id": job, "Weir-Query": query}); a.Error != nil {
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
	r.Eventually("the calls", func() bool { return len(r.API.All()) == ended+2 && r.Store().Waiting("pay") == 0 })
	r.Eventually("the status to count what waits", func() bool {
		_, pay := callbackOf(t, r)
		return pay.Callback.Behind == ended && !pay.Callback.Failing.IsZero() && strings.HasPrefix(pay.Callback.Why, "answered ") && !pay.Callback.Oldest.IsZero()
	})
	if s, _ := callbackOf(t, r); !s.Healthy {
		t.Errorf("a receiver that is down is a problem: %+v", s.Problems)
	}
	if out := r.CLI().Must("status"); !strings.Contains(out, "CALLBACK OF") || !strings.Contains(out, "fails since") {
		t.Errorf("the status says\n%s", out)
	}
	if out, code := r.CLI().Run("notify", "test", "pay/callback"); code != 1 || !strings.Contains(out, "pay/callback: answered ") {
		t.Errorf("the test of the receiver ends with %d: %s", code, out)
	}
	if !strings.Contains(r.HTTP().Get("/metrics"), fmt.Sprintf(`weir_callback_behind{api="pay",end="done"} %d`, ended)) {
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
	if out, code := r.CLI().Run("notify", "test"); code != 0 || !strings.Contains(out, "pay/callback: accepted") {
		t.Errorf("the test of all receivers ends with %d: %s", code, out)
	}
	for _, secret := range []string{"swordfish", web.HookSecret, strings.TrimPrefix(hook.URL, "http://")} {
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
	r.Eventually("its end", func() bool { return len(r.Store().Results("pay", "unheard")) == 1 })
	r.Follow(yaml)
	submit("heard", "")
	took("the next end", `"job":"heard"`, 1)
	// The end of "first" was posted before the callback was taken out.
	for _, job := range []string{"unheard", "first"} {
		if p := postingOf(t, r, job); p.State != admin.PostingSettled || !strings.HasSuffix(p.Text, ": the job ended before the callback was last configured") {
			t.Errorf("the end of %s, from before the callback: %+v", job, p)
		}
	}
	if _, n := hook.Took(`"job":"unheard"`); n != 0 {
		t.Error("it hears of what ended while it was not configured")
	}
}

// TestCallbackRestart: what was under way when weir stopped is posted by the next start, and nothing that was accepted
// is posted again after an orderly stop.
func TestCallbackRestart(t *testing.T) {
	t.Parallel()
	hook := web.NewHookReceiver(t)
	hook.Answers(func(_ int, body string) int {
		if strings.Contains(body, `"job":"stuck"`) {
			return http.StatusInternalServerError
		}
		return http.StatusOK
	})
	yaml := strings.ReplaceAll(callbackYAML, "${env:CALLBACK_URL}", web.SecretFile(t, hook.URL+"/swordfish"))
	r := weirtest.NewRig(t, fakeapi.Options{}, yaml)
	for _, job := range []string{"stuck", "a", "b", "c"} {
		if a := r.Producer().Submit("weir.jobs.pay."+job, nil, map[string]string{"Nats-Msg-Id": job}); a.Error != nil {
			t.Fatalf("%+v", a)
		}
	}
	await.Until(t, "the others", func() bool { _, n := hook.Took(""); return n == 3 })
	await.Until(t, "a try of the one that fails", func() bool { return len(hook.Tried()) >= 4 })
	r.Eventually("weir to have read the answers", func() bool {
		return strings.Contains(r.HTTP().Get("/metrics"), `weir_callback_ends_total{api="pay",end="done",outcome="sent"} 3`)
	})
	r.Stop()
	hook.Answers(func(int, string) int { return http.StatusOK })
	r.Start()
	await.Until(t, "the one that failed", func() bool { _, n := hook.Took(`"job":"stuck"`); return n == 1 })
	if a := r.Producer().Submit("weir.jobs.pay.k", nil, map[string]string{"Nats-Msg-Id": "last"}); a.Error != nil {
		t.Fatalf("%+v", a)
	}
	await.Until(t, "the last", func() bool { _, n := hook.Took(`"job":"last"`); return n == 1 })
	if _, n := hook.Took(""); n != 5 {
		t.Errorf("%d posts of 5 ends were accepted", n)
	}
}

// postingOf returns what the story of a job says of its end's post, the zero value if it says nothing.
func postingOf(t *testing.T, r *weirtest.Rig, job string) (p jobstory.Callback) {
	t.Helper()
	var story jobstory.Timeline
	out := r.CLI().Must("job", job, "--json")
	if err := json.Unmarshal([]byte(out), &story); err != nil || len(story.Jobs) != 1 {
		t.Fatalf("the story of %s: %v: %s", job, err, out)
	}
	if story.Jobs[0].Callback == nil {
		return p
	}
	return *story.Jobs[0].Callback
}

// TestCallbackInStories: the story of a job says whether its end was posted: not while the job waits, and never before
// the receiver has accepted it. The page of a bucket says how far the callback is behind, and no secret of its address.
func TestCallbackInStories(t *testing.T) {
	t.Parallel()
	hook := web.NewHookReceiver(t)
	address := web.SecretFile(t, hook.URL+"/swordfish")
	r := weirtest.NewRig(t, fakeapi.Options{}, strings.ReplaceAll(`
apis:
  pay:
    url: %[1]s
    callback: {url: "${env:CALLBACK_URL}", secret: "${env:HOOK_SECRET}", rate: 1000/s}
    bucket: {rate: 500/s, capacity: 1000}
    keys: {slow: {rate: 1/h, capacity: 5}}
  sms: {url: %[1]s, bucket: {rate: 500/s, capacity: 1000}}
`, "${env:CALLBACK_URL}", address))
	submit := func(api, key, job, query string) {
		t.Helper()
		if a := r.Producer().Submit("weir.jobs."+api+"."+key, nil, map[string]string{"Nats-Msg-Id": job, "Weir-Query": query}); a.Error != nil {
			t.Fatalf("%s: %+v", job, a.Error)
		}
	}
	says := func(job string, want admin.PostingState) (p jobstory.Callback) {
		t.Helper()
		r.Eventually(fmt.Sprintf("the story of %s to say %s", job, want), func() bool {
			p = postingOf(t, r, job)
			if _, accepted := hook.Took(fmt.Sprintf(`"job":"%s"`, job)); p.State == admin.Posted && accepted == 0 {
				t.Fatalf("the story of %s says that its end was posted, and the receiver has not accepted it", job)
			}
			return p.State == want
		})
		return p
	}
	hook.Answers(func(int, string) int { return http.StatusInternalServerError })
	submit("pay", "k", "first", "")
	submit("pay", "k", "bad", "fake-status=400")
	if p := says("first", admin.PostingTried); !strings.HasPrefix(p.Text, "is tried, and not accepted yet") {
		t.Errorf("the end that is tried: %+v", p)
	}
	says("bad", admin.PostingTried)
	for i := range 40 { // more than are under way at once
		submit("pay", fmt.Sprint("k", i), fmt.Sprint("down-", i), "")
	}
	r.Eventually("all ends", func() bool { return r.Store().Messages(ledger.ResultsStream) == 41 })
	submit("pay", "last", "last", "")
	r.Eventually("what the receiver says", func() bool {
		p := says("last", admin.PostingWaits)
		return p.Behind == 42 && p.Why == "answered 500" && !p.Failing.IsZero() &&
			strings.HasPrefix(p.Text, "waits to be posted; 41 other ends are not posted yet, the oldest from ") && strings.HasSuffix(p.Text, ": answered 500")
	})
	submit("pay", "slow", "called", "")
	submit("pay", "slow", "queued", "")
	submit("sms", "k", "other", "")
	says("called", admin.PostingWaits)
	if out := r.CLI().Must("job", "last"); !strings.Contains(out, "waits to be posted; ") {
		t.Errorf("the command says\n%s", out)
	}
	if out := r.HTTP().Get("/api/v1/jobs/last"); !strings.Contains(out, `"state":"waits"`) {
		t.Errorf("the API says %s", out)
	}
	r.Eventually("the bucket to say how far the callback is behind", func() bool {
		return strings.Contains(r.CLI().Must("show", "pay", "slow"), address+": 44 ends wait, the oldest from ")
	})
	if out := r.CLI().Must("show", "pay", "slow", "--json"); strings.Contains(out, "swordfish") || !strings.Contains(out, `"receiver":"`+address+`"`) {
		t.Errorf("the bucket says %s", out)
	}
	r.Eventually("the job of the api without a callback", func() bool {
		return len(r.Store().Results("sms", "k")) == 1
	})
	for _, job := range []string{"queued", "other"} {
		if p := postingOf(t, r, job); p.State != "" {
			t.Errorf("the story of %s says %+v", job, p)
		}
	}

	hook.Answers(func(int, string) int { return http.StatusOK })
	for _, job := range []string{"first", "bad", "last"} {
		if p := says(job, admin.Posted); p.Text != "posted: the receiver has accepted it" {
			t.Errorf("the end of %s that was posted: %+v", job, p)
		}
	}
	r.Eventually("the bucket to say that no end waits", func() bool {
		return strings.Contains(r.CLI().Must("show", "pay", "slow"), address+": no end waits\n")
	})
}

// TestCallbackGivenUpInStories: the story of a job says that weir gave up its end, and why, also after a restart.
func TestCallbackGivenUpInStories(t *testing.T) {
	t.Parallel()
	hook := web.NewHookReceiver(t)
	hook.Answers(func(_ int, body string) int {
		if strings.Contains(body, `"job":"good"`) {
			return http.StatusOK
		}
		return http.StatusInternalServerError
	})
	yaml := strings.ReplaceAll(callbackYAML, "${env:CALLBACK_URL}", web.SecretFile(t, hook.URL+"/swordfish"))
	r := weirtest.NewRig(t, fakeapi.Options{}, yaml)
	for _, job := range []string{"lost", "good"} {
		if a := r.Producer().Submit("weir.jobs.pay."+job, nil, map[string]string{"Nats-Msg-Id": job}); a.Error != nil {
			t.Fatalf("%s: %+v", job, a.Error)
		}
	}
	await.Until(t, "a try of both", func() bool { return len(hook.Tried()) >= 2 })
	results, err := r.Operators().Stream(t.Context(), ledger.ResultsStream)
	if err == nil {
		err = results.DeleteMsg(t.Context(), r.Store().Results("pay", "lost")[0].Sequence)
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r.Eventually("the stories", func() bool {
			lost, good := postingOf(t, r, "lost"), postingOf(t, r, "good")
			if lost.State == admin.Posted {
				t.Fatalf("the story says of an end that was given up: %+v", lost)
			}
			return lost.State == admin.PostingGivenUp && good.State == admin.Posted
		})
		if p := postingOf(t, r, "lost"); !strings.HasPrefix(p.Text, "given up at ") || !strings.HasSuffix(p.Text, ": its result was removed: results are not kept longer") {
			t.Errorf("the end that was given up: %+v", p)
		}
		r.Stop()
		r.Start()
	}
}
