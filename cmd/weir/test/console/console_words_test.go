package console

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
	"weir/cmd/weir/internal/ops/doctor"
	"weir/cmd/weir/internal/ops/status"
	"weir/cmd/weir/weirtest"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// TestConsoleExplainsLetters: a job that could not be called before its deadline is not explained as one that found its bucket full, and one
// that found it full is.
func TestConsoleExplainsLetters(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, `
apis:
  pay: {url: %s, bucket: {rate: 1/h, capacity: 2}}
`)
	r.Producer().Submit("weir.jobs.pay.a", nil, map[string]string{"Weir-Path": "/a"})
	r.AwaitCalls(1)
	r.Producer().Submit("weir.jobs.pay.a", nil, map[string]string{"Weir-Path": "/a", "Weir-Deadline": "1m"})
	for range 3 {
		r.Producer().Submit("weir.jobs.pay.a", nil, map[string]string{"Weir-Path": "/a"})
	}
	b := newBrowser(t, r.Worker.HTTPAddr())
	for seq, want := range map[int]struct{ says, not string }{
		1: {says: "without the deadline", not: "bucket can take"},
		2: {says: "bucket was full", not: "deadline"},
	} {
		b.open(fmt.Sprintf("/letter?seq=%d", seq))
		b.wait("the letter", `document.querySelector("main .told")`)
		if said := b.text("main .told .quiet"); !strings.Contains(said, want.says) || strings.Contains(said, want.not) {
			t.Errorf("letter %d, %q, is explained as %q", seq, b.text("main .told"), said)
		}
	}
	b.press("?")
	b.wait("the help", `document.querySelector("dialog[open] dl")`)
	if said := b.text("dialog dl"); strings.Contains(said, "=>") || !strings.Contains(said, "find a job") || !strings.Contains(said, "Redrives") {
		t.Errorf("the keyboard's help says\n%s", said)
	}
	b.open("/")
	b.wait("the letters in the head", `document.querySelector("nav a[href='/letters'] .chip")`)
	if said := b.text("#page"); strings.Contains(said, "1 dead letters") {
		t.Errorf("one letter is told as several:\n%s", said)
	}
}

// TestSpentBudgetIsAWarning: while jobs wait for a budget that is spent, the status, the check and the console warn of it, the key's bucket
// says that it gets nothing before, and the console says since when it counts.
func TestSpentBudgetIsAWarning(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, `
apis:
  pay: {url: %s, price: 0.10, bucket: {rate: 20/s, capacity: 9}, limits: [{name: spend, budget: 0.20/day, tz: `+machine.Noon()+`}]}
`)
	for range 5 {
		r.Producer().Submit("weir.jobs.pay.a", nil, map[string]string{"Weir-Path": "/a"})
	}
	r.AwaitCalls(2)
	const warns = "the budget spend is spent"
	var said string
	r.Eventually("a warning", func() bool {
		out, code := r.CLI().Run("status")
		said = out
		return code == 0 && strings.Contains(out, warns) && strings.Contains(out, "healthy, with 1 warning")
	})
	if !strings.Contains(said, "3 jobs wait") {
		t.Errorf("the status says\n%s", said)
	}
	if out, code := r.CLI().Run("check"); code != int(status.Warning) || !strings.Contains(out, warns) {
		t.Errorf("the check ends with %d: %s", code, out)
	}
	gets := regexp.MustCompile(`(?m)^gets +nothing until \S+T\S+, then 20/s: its own rate$`)
	if out, _ := r.CLI().Run("show", "pay", "a"); !gets.MatchString(out) {
		t.Errorf("the bucket is shown as\n%s", out)
	}
	b := newBrowser(t, r.Worker.HTTPAddr())
	b.open("/")
	b.wait("the warning", fmt.Sprintf(`document.querySelector("main .told.warn")?.innerText.includes(%s)`, quote(warns)))
	if _, err := chromedp.Call(b.ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kathmandu"}); err != nil {
		t.Fatal(err)
	}
	b.open("/")
	b.wait("the warning at the user's time, with UTC", `[...document.querySelectorAll("main .told.warn time")].some((e) => {
  const local = new Date(e.title).toLocaleString("sv", { timeZone: "Asia/Kathmandu" });
  return /T.*Z$/.test(e.title) && local.includes(e.textContent) && !e.textContent.includes("Z");
})`)
	b.wait("since when", `/^\d\d:\d\d:\d\d$/.test(document.querySelector("[data-api=pay] [data-field=since]")?.textContent)`)
	b.wait("since when there are samples", `/^since \d\d:\d\d:\d\d$/.test(document.querySelector("[data-api=pay] .legend .quiet")?.textContent)`)
	b.open("/limits")
	b.wait("the day of the budget", `document.querySelector("[data-limit=spend] rect.reached") && document.querySelector("[data-limit=spend] figcaption").innerText.includes("0.20 of 0.20 used now")`)
	b.open("/bucket?api=pay&key=a")
	b.wait("what it gets", `/nothing until .*, then 20.s: its own rate/.test(document.querySelector("main .facts")?.innerText)`)
}

// TestConsoleGradesFindings: every grade of the doctor's findings has its mark in the console, and a word for a screen reader.
func TestConsoleGradesFindings(t *testing.T) {
	t.Parallel()
	b := scripts(t)
	findings, err := json.Marshal(map[string]any{"findings": []doctor.Finding{
		{Grade: doctor.Fine, What: "it is fine"}, {Grade: doctor.Watch, What: "it needs a look"}, {Grade: doctor.Bad, What: "it is bad"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	eval[any](b, `(window.fetch = ((real) => (path, ...more) => path.endsWith("/doctor") ? Promise.resolve(new Response(`+quote(string(findings))+`)) : real(path, ...more))(window.fetch), null)`)
	b.visit("/doctor")
	b.wait("the findings", `document.querySelectorAll(".findings .chip").length === 3`)
	marks := eval[[]string](b, `[...document.querySelectorAll(".findings .chip")].map((e) => e.className + ": " + e.querySelector(".unseen").textContent)`)
	if got, want := strings.Join(marks, ", "), "chip good: fine, chip held: warning, chip dead: to fix"; got != want {
		t.Errorf("they are marked as %s, want %s", got, want)
	}
}
