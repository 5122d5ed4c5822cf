package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/web"

	"github.com/chromedp/chromedp/kb"
)

// TestConsoleJobs: the page of jobs lists them in every state, by pages and filters, with the keyboard alone, and leads to a job's story and
// to the answer that the API gave.
func TestConsoleJobs(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, `
apis:
  pay: {url: %s, bucket: {rate: 200/s, capacity: 100}, keys: {slow: {rate: 1/h, capacity: 4}}}
`)
	for i := range 60 {
		r.Producer().Submit("weir.jobs.pay.fast", nil, map[string]string{"Nats-Msg-Id": fmt.Sprintf("order-%02d", i), "Weir-Path": "/fast"})
	}
	r.Eventually("them to be done", func() bool { return r.Store().Messages("WEIR_RESULTS") == 60 })
	for i := range 6 { // one is called at once and leaves the bucket, four wait, one overflows
		r.Producer().Submit("weir.jobs.pay.slow", nil, map[string]string{"Nats-Msg-Id": fmt.Sprint("slow-", i), "Weir-Path": "/slow"})
		if i == 0 {
			r.Eventually("the slow key's call", func() bool {
				return r.Store().Messages("WEIR_RESULTS") == 61 && r.Store().Waiting("pay") == 0
			})
		}
	}
	r.Eventually("the overflow", func() bool { return r.Store().Messages("WEIR_DEAD") == 1 })
	b := newBrowser(t, r.Worker.HTTPAddr())
	rows := func(n int) string {
		return fmt.Sprintf(`document.querySelectorAll("tbody tr[data-job]").length === %d`, n)
	}
	b.open("/")
	b.press("gj")
	b.wait("the first page", `location.pathname === "/jobs" && `+rows(50))
	first := eval[[]string](b, `[...document.querySelectorAll("tbody tr")].map((tr) => tr.dataset.job)`)
	b.click("nav[aria-label='Pages of jobs'] button:last-child")
	b.wait("the second page", rows(16))
	second := eval[[]string](b, `[...document.querySelectorAll("tbody tr")].map((tr) => tr.dataset.job)`)
	seen := map[string]bool{}
	for _, job := range append(first, second...) {
		if seen[job] {
			t.Errorf("%s is on two pages", job)
		}
		seen[job] = true
	}
	for state, want := range map[string]int{"waiting": 4, "dead": 1, "calling": 0} {
		b.click("[aria-label='States of jobs'] [data-state=" + state + "]")
		b.wait(state, fmt.Sprintf(`location.search.includes("state=%s") && !document.querySelector("main").innerText.includes("Asking for") && `, state)+rows(want))
	}
	b.visit("/jobs?id=order-07")
	b.wait("one job", rows(1))
	b.press("j")
	b.wait("the row", `document.activeElement.textContent === "order-07"`)
	b.press(kb.Enter)
	b.wait("its story", `location.pathname === "/job" && document.querySelector("[data-state=done]")`)
	b.click("section[aria-label=Result] button")
	b.wait("the answer", `document.querySelector("pre")?.textContent.includes('"status": 200')`)
}

// TestConsoleTellsOfCallbacks: a job's page says that its end waits for its callback's receiver, and once that accepts
// it, that it was posted. A bucket's page says where the ends are posted and how many wait, and no secret of the
// address.
func TestConsoleTellsOfCallbacks(t *testing.T) {
	t.Parallel()
	hook := web.NewHookReceiver(t)
	hook.Answers(func(int, string) int { return http.StatusInternalServerError })
	address := web.SecretFile(t, hook.URL+"/swordfish")
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  pay:
    url: %s
    callback: {url: "`+address+`", secret: "${env:HOOK_SECRET}", rate: 1000/s}
    bucket: {rate: 1/h, capacity: 4}
`)
	for _, job := range []string{"ends", "waits"} {
		r.Producer().Submit("weir.jobs.pay.k", nil, map[string]string{"Nats-Msg-Id": job})
	}
	r.Eventually("the end", func() bool { return r.Store().Messages("WEIR_RESULTS") == 1 })
	b := newBrowser(t, r.Worker.HTTPAddr())
	b.open("/job?id=ends")
	b.wait("that the end is tried", `document.querySelector("[data-field=callback][data-state=tried]")?.innerText.includes("answered 500")`)
	b.visit("/bucket?api=pay&key=k")
	b.wait("how many wait", `document.querySelector("[data-field=callback]")?.innerText.startsWith("`+address+`: 1 end not posted yet, receiver fails since ")`)
	hook.Answers(func(int, string) int { return http.StatusOK })
	b.wait("that none waits", `document.querySelector("[data-field=callback]")?.innerText === "`+address+`: no end waits"`)
	b.visit("/job?id=ends")
	b.wait("that the end was posted", `document.querySelector("[data-field=callback][data-state=posted]")?.innerText === "Callback: posted: the receiver has accepted it"`)
	b.visit("/job?id=waits")
	b.wait("the job that waits", `document.querySelector("[data-state=queued]") && document.querySelector("[data-field=callback]") === null`)
}

// TestConsoleTellsOfOperations: a job that is polled is listed as such, its page says its priority, and the page of its
// letter shows the operation's address once its body is revealed.
func TestConsoleTellsOfOperations(t *testing.T) {
	t.Parallel()
	o := &fakeapi.Operations{}
	o.Hold("clip")
	r := weirtest.NewRig(t, fakeapi.Options{Script: o.Script}, `
apis:
  render:
    url: %s
    bucket: {rate: 100/s, capacity: 10}
    operation:
      poll: {path: "{answer-header:Location}", every: 1s, rate: 100/s}
      answers: [{status: 200, json: /state, values: [done], means: done}, {status: 200, means: running}]
`)
	job := map[string]string{"Nats-Msg-Id": "clip", "Weir-Path": "/clip", "Weir-Priority": "high"}
	r.Producer().Submit("weir.jobs.render.k", nil, job)
	b := newBrowser(t, r.Worker.HTTPAddr())
	b.open("/jobs?state=polling")
	b.wait("the job that is polled", `document.querySelector("tr[data-job=clip] [data-state=polling]")`)
	b.visit("/job?id=clip")
	b.wait("its priority", `document.querySelector("[data-field=priority]")?.innerText === "Priority: high"`)
	r.CLI().Must("cancel", "render", "clip")
	r.Eventually("its letter", func() bool { return r.Store().Messages("WEIR_DEAD") == 1 })
	b.visit("/letter?seq=1")
	b.wait("that there is an operation", `document.querySelector("[data-field=operation]")?.innerText.endsWith("shown with the body")`)
	b.click("main .card button")
	b.wait("its address", `document.querySelector("[data-field=operation] code")?.textContent.endsWith("/operations/clip")`)
}

// TestConsoleJobsForViewers: a viewer sees the list and the stories, and no body.
func TestConsoleJobsForViewers(t *testing.T) {
	t.Parallel()
	r := weirtest.OverHTTP(t)
	r.Eventually("the jobs", func() bool {
		status, body := r.HTTP().Say("GET", "/api/v1/jobs", web.CanaryViewer, "")
		if strings.Contains(body, web.CanaryBody) {
			t.Errorf("the list tells a viewer a body: %s", body)
		}
		return status == http.StatusOK && strings.Count(body, `"job":`) == 4
	})
	for _, job := range []string{"done", "waits", "overflows"} {
		status, body := r.HTTP().Say("GET", "/api/v1/jobs/"+job, web.CanaryViewer, "")
		if status != http.StatusOK || strings.Contains(body, "canary") || strings.Contains(body, `"body"`) {
			t.Errorf("%s: %d %s", job, status, body)
		}
	}
	for token, want := range map[string]int{"": http.StatusUnauthorized, web.CanaryProducer: http.StatusForbidden, web.CanaryOperator: http.StatusOK} {
		if status, body := r.HTTP().Say("GET", "/api/v1/jobs?limit=1", token, ""); status != want {
			t.Errorf("as %q: %d %s", token, status, body)
		}
	}
}

// TestConsoleAsksForFewDays: the page of limits draws the last day of six APIs, and asks for one after the other: weir
// adds up few at a time.
func TestConsoleAsksForFewDays(t *testing.T) {
	t.Parallel()
	config := "apis:\n"
	for i := range 6 {
		config += fmt.Sprintf("  api-%d: {url: %%[1]s, bucket: {rate: 200/s, capacity: 100}, limits: [{name: day, quota: 100/day}]}\n", i)
	}
	r := weirtest.NewRig(t, fakeapi.Options{}, config)
	r.Producer().Submit("weir.jobs.api-0.k", nil, nil)
	r.Eventually("the job to be done", func() bool { return r.Store().Messages("WEIR_CALLS") > 0 })
	b := newBrowser(t, r.Worker.HTTPAddr())
	b.open("/")
	eval[bool](b, `(() => {
		const asks = window.fetch
		let under = 0
		window.most = 0
		window.fetch = async (path, ...rest) => {
			if (!String(path).endsWith("/use")) return asks(path, ...rest)
			window.most = Math.max(window.most, ++under)
			try { await new Promise((go) => setTimeout(go, 20)); return await asks(path, ...rest) } finally { under-- }
		}
		return true
	})()`)
	b.press("gm")
	b.wait("six days", `location.pathname === "/limits" && document.querySelectorAll("figure.day").length === 6`)
	if most := eval[int](b, `window.most`); most != 1 {
		t.Errorf("%d days were asked for at once", most)
	}
}
