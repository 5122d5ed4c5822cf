package console

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/deadletter"
)

// TestConsoleRedrive is an operator's afternoon: a bucket overflows on screen; the operator opens the letters, looks at
// one, sees what a redrive of all would do, starts it, and watches the letters leave at the bucket's rate. Each job is
// called once.
func TestConsoleRedrive(t *testing.T) {
	t.Parallel()
	const jobs, capacity = 24, 8
	r := weirtest.NewRig(t, fakeapi.Options{KeepBody: 64, Key: fakeapi.KeyFrom{Segment: -1}}, `
apis:
  pay: {url: %s, price: 0.10, jitter: 20ms, bucket: {rate: 10/s, capacity: 8}, keys: {b: {capacity: 90}}}
`)
	b := newBrowser(t, r.Worker.HTTPAddr())
	b.open("/buckets?api=pay")
	b.wait("the numbers", `document.querySelector("footer time")`)
	r.WhilePaused(func() {
		for i := range jobs {
			r.Producer().Submit("weir.jobs.pay.a", fmt.Appendf(nil, `{"n":%d}`, i), map[string]string{"Weir-Path": "/a"})
		}
		b.wait("the full bucket, live", `document.querySelector("tr[data-key=a] [data-field=depth]")?.textContent === "8" && document.querySelector("tr[data-key=a] .vessel.full.stopped")`)
		b.wait("the letters in the head, live", `document.querySelector("nav a[href='/letters'] .chip")?.textContent === "16"`)
		b.click("nav a[href='/letters']")
		b.wait("one cause", `document.querySelector("h1").textContent === "16 letters, 1 cause" && document.querySelector("[data-reason=overflow]")`)
		b.click("tbody tr a")
		b.wait("the letter, its body hidden", `location.pathname === "/letter" && document.querySelector("main").innerText.includes("hidden until you ask") && document.querySelector("pre") === null`)
		b.click("main .card button")
		b.wait("its body", `document.querySelector("pre")?.textContent.includes('"n": 23')`)
		b.visit("/letters?reason=overflow")
	})
	r.Eventually("room", func() bool { return r.Store().Waiting("pay") == 0 })
	b.click("main .bar button.main")
	b.wait("the plan", `document.querySelector("dialog [data-plan=letters]")?.textContent.startsWith("16 letters of 1 key")`)
	if cost, overflow := b.text("dialog [data-plan=cost]"), b.text("dialog [data-plan=overflow]"); cost != "1.60" || overflow == "none should overflow again" {
		t.Errorf("the plan says cost %s, overflow %s", cost, overflow)
	}
	b.click("dialog .filters button") // the rate at which none should
	b.wait("the slower plan", `document.querySelector("dialog [data-plan=overflow]")?.textContent === "none should overflow again"`)
	if n := r.Store().Messages(deadletter.Stream); n != jobs-capacity {
		t.Errorf("%d letters are left by a plan", n)
	}
	b.click("dialog button[type=submit]")
	b.wait("its progress", `location.pathname === "/redrives" && document.querySelector("[data-field=redriven]")`)
	b.wait("its end", `document.querySelector("main [data-state=done]") && document.querySelector("[data-field=redriven]").textContent === "16"`)
	arrivals := r.AwaitCalls(jobs)
	r.Referee().CheckRate(arrivals, bucket.Rate{Count: 10, Per: time.Second, Burst: 1})
	for body, n := range r.Referee().PerBody() {
		if n != 1 {
			t.Errorf("%s was called %d times", body, n)
		}
	}
	b.click("nav a[href='/letters']")
	b.wait("no letters, live", `document.querySelector("main").innerText.includes("No dead letters") && document.querySelector("nav a[href='/letters'] .chip") === null`)
	b.click("nav a[href='/events']")
	b.wait("what was told", `document.querySelector("main").innerText.includes("revealed") && document.querySelector("main").innerText.includes("redriven")`)
	if told := b.text("main table"); !strings.Contains(told, " redrove 16 letters (") || !strings.Contains(told, " looked at the job's body (letter ") || strings.Contains(told, "overflowed:") {
		t.Errorf("the events are told as %s", told)
	}
	b.wait("the link to the redrive", `document.querySelector("main td a[href^='/redrives?id=']")`)
	var offered []deadletter.EventType
	for _, name := range eval[[]string](b, `[...document.querySelectorAll("#filter-type option")].map((o) => o.value).filter(Boolean)`) {
		offered = append(offered, deadletter.EventType(name))
	}
	if !slices.Equal(offered, deadletter.EventTypes()) {
		t.Errorf("one can choose among the events %v", offered)
	}
}

// TestConsoleEditsALetter: a letter's job is submitted again with another body, of text or of bytes, and with other
// headers.
func TestConsoleEditsALetter(t *testing.T) {
	t.Parallel()
	api := weirtest.StartOrdered(t, map[string][]string{"a": {"status=422", "status=422"}})
	r := weirtest.RigOn(t, api, fmt.Sprintf(`
apis:
  pay: {url: %s, retry: {attempts: 1}, forward_headers: [X-Source, X-Old], bucket: {rate: 50/s, capacity: 9}}
`, api.URL()))
	b := newBrowser(t, r.Worker.HTTPAddr())
	edit := func() {
		t.Helper()
		r.Eventually("the letter", func() bool { return len(r.Store().Letters("pay", "a")) == 1 })
		b.open(fmt.Sprintf("/letter?seq=%d", r.Store().Letters("pay", "a")[0].Sequence))
		b.click("main .card button")
		b.click("main .bar .actions > button:not(.main):not(.danger)")
		b.wait("the plan, and nothing to do", `document.querySelector("dialog .plan") && document.querySelector("dialog button[type=submit]").disabled`)
	}
	const send = "dialog button[type=submit]"
	r.Producer().Submit("weir.jobs.pay.a", []byte(`{"n":1}`), map[string]string{"Weir-Path": "/a", "Weir-Header-X-Old": "old"})
	edit()
	b.fill("#edit-body", `{"n":2}`)
	b.fill("#edit-set", "Weir-Header-X-Source shop")
	b.wait("what is wrong", `document.querySelector("#edit-wrong").innerText.includes("Name: value") && document.querySelector("dialog button[type=submit]").disabled`)
	b.fill("#edit-set", "Weir-Header-X-Source: shop\nWeir-Header-X-Source: web")
	b.fill("#edit-unset", "Weir-Header-X-Old")
	b.click(send)
	b.wait("the redrive", `location.pathname === "/redrives" && document.querySelector("main [data-state=done]")`)
	if call := r.AwaitCalls(2)[1]; string(call.Body) != `{"n":2}` || call.Header("X-Source") == "" || call.Header("X-Old") != "" {
		t.Errorf("the api got %+v", call)
	}
	bytes, file := "\xff\x00\x01", filepath.Join(t.TempDir(), "body")
	weirtest.WriteFile(t, file, bytes)
	edit()
	b.attach("#edit-file", file)
	b.click(send)
	b.wait("the redrive", `location.pathname === "/redrives" && document.querySelector("main [data-state=done]")`)
	if call := r.AwaitCalls(3)[2]; string(call.Body) != bytes || call.Header("X-Source") == "" {
		t.Errorf("the api got %+v", call)
	}
}
