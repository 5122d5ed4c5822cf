package console

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/deadletter"

	"github.com/chromedp/chromedp/kb"
)

// axe is the script of axe-core, which `make axe` fetches from npm.
func axe(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(weirtest.Repository, "bin", "tools", "axe-*.js"))
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Skip("there is no axe-core here: `make axe` fetches it")
	}
	return weirtest.MustRead(t, found[len(found)-1])
}

// everything is a weir of which each page has something to show, and a browser at its console.
func everything(t *testing.T) (*weirtest.Rig, *browser) {
	t.Helper()
	api := weirtest.StartOrdered(t, map[string][]string{
		"refused": {"status=422;text=no such customer"}, "lost": {"reset=answer"},
	})
	r := weirtest.RigOn(t, api, fmt.Sprintf(`
apis:
  pay: {url: %s, price: 0.10, jitter: 20ms, bucket: {rate: 4/s, capacity: 6}, limits: [{name: account, rate: 50/s}, {name: spend, budget: 0.30/day}]}
  sms-with-a-long-name-of-a-gateway: {url: %[1]s, bucket: {rate: 1/h, capacity: 3}, limits: [{name: a-quota-of-the-gateway, quota: 20/day}]}
  quotes: {url: %[1]s, price: 0.25, retry: {attempts: 1}, bucket: {rate: 50/s, capacity: 9}, reuse: {for: 1h}, usage: {input_tokens: "json:/status"}}
`, api.URL()))
	for i, way := range []string{"refused", "lost"} {
		r.Producer().Submit("weir.jobs.quotes."+way, []byte("{}"), map[string]string{"Weir-Path": "/" + way, "Nats-Msg-Id": way})
		r.Eventually("the letter of "+way, func() bool { return r.Store().Messages(deadletter.Stream) == i+1 })
	}
	for i := range 2 { // the second gets the answer of the first
		id := fmt.Sprintf("quote-%d", i)
		r.Producer().Submit("weir.jobs.quotes.asked-twice", []byte("{}"), map[string]string{"Weir-Path": "/q", "Nats-Msg-Id": id})
		r.Eventually("its answer", func() bool { return len(r.Store().Results("quotes", "asked-twice")) == i+1 })
	}
	for i := range 8 {
		r.Producer().Submit("weir.jobs.pay.customer-with-a-long-name-0123456789-0123456789", fmt.Appendf(nil, `{"n":%d}`, i), map[string]string{"Weir-Path": "/a", "Nats-Msg-Id": fmt.Sprintf("order-%d", i)})
		r.Producer().Submit("weir.jobs.sms-with-a-long-name-of-a-gateway.k", nil, map[string]string{"Weir-Path": "/k"})
	}
	r.AwaitCalls(7)
	r.CLI().Run("dead", "redrive", "--api", "pay", "--rate", "100/s", "--yes", "--name", "again")
	file := filepath.Join(t.TempDir(), "second.yaml")
	weirtest.WriteFile(t, file, strings.ReplaceAll(r.YAML, "capacity: 3", "capacity: 4"))
	if said, code := r.CLI().Run("config", "apply", "-f", file, "--yes"); code != 0 {
		t.Fatalf("config apply ends with %d: %s", code, said)
	}
	r.CLI().Run("pause", "sms-with-a-long-name-of-a-gateway", "--why", "the test looks")
	return r, newBrowser(t, r.Worker.HTTPAddr())
}

// everyPage are the addresses of all pages of everything, some of them as an operator's work leaves them.
var everyPage = []string{
	"/", "/buckets", "/buckets?api=pay", "/bucket?api=pay&key=customer-with-a-long-name-0123456789-0123456789",
	"/bucket?api=pay&key=none", "/letters", "/letters?reason=unknown", "/letter?seq=1", "/letter?seq=2", "/letter?seq=3",
	"/redrives", "/redrives?id=again", "/jobs", "/jobs?state=dead&api=pay&status=5xx", "/jobs?state=waiting", "/job",
	"/job?id=order-0", "/job?id=order-1", "/job?id=order-4", "/job?id=quote-1", "/job?id=lost", "/job?id=none",
	"/limits", "/spend", "/spend?by=key", "/replicas", "/doctor", "/configuration", "/configuration?propose=1",
	"/configuration?from=1&to=2", "/events", "/nowhere",
}

// shown are dialogues and what a click shows: the page, what is clicked there, and what is there then.
var shown = []struct{ name, page, click, then string }{
	{"help", "/", ".tools button[aria-label='Keyboard shortcuts']", "dialog[open] dl"},
	{"pause", "/", "[data-api=pay] button[aria-label='Pause pay']", "dialog[open] #pause-why"},
	{"resume", "/", "button[aria-label^='Resume sms']", "dialog[open] button[type=submit]"},
	{"cancel", "/job?id=order-4", "button[aria-label='Cancel job order-4']", "dialog[open] button[type=submit]"},
	{"answer", "/job?id=order-0", "section[aria-label=Result] button", "section[aria-label=Result] pre"},
	{"redrive", "/letters", "main .bar button.main", "dialog[open] .plan"},
	{"import", "/letters", "main .bar .actions > button:not(.main):not(.danger)", "dialog[open] #import-file"},
	{"ask", "/letter?seq=2", "main .bar .actions > button:not(.main):not(.danger)", "dialog[open] button[type=submit]"},
	{"purge", "/letter?seq=1", "main .bar button.danger", "dialog[open] button[type=submit]:not(:disabled)"},
	{"reveal", "/letter?seq=1", "main .card button", "main pre#letter-1-answer"},
	{"edit", "/letter?seq=1", "main .bar .actions > button:not(.main):not(.danger)", "dialog[open] .plan"},
	{"rollback", "/configuration", "main td button", "dialog[open] .diff"},
	{"proof", "/limits", "section[aria-label=Proof] button", "section[aria-label=Proof] tbody tr"},
}

// show goes through what clicks show; look looks at each.
func (b *browser) show(look func(name string)) {
	b.t.Helper()
	for _, s := range shown {
		b.visit(s.page)
		b.settled(s.page)
		b.click(s.click)
		b.wait(s.name, fmt.Sprintf(`document.querySelector(%s)`, quote(s.then)))
		look(s.name)
		b.press(kb.Escape)
		b.wait("no dialogue", `document.querySelector("dialog") === null`)
	}
}

// age stops the page's listening to weir, as a hidden tab does: its figures get old, and its questions are answered
// still.
func (b *browser) age() {
	b.t.Helper()
	eval[any](b, `(dispatchEvent(new Event("pagehide")), null)`)
	b.wait("the figures to be old", `document.documentElement.classList.contains("old") && document.querySelector(".contact")`)
}

// settled waits until a page has its answers.
func (b *browser) settled(path string) {
	b.t.Helper()
	b.wait(path+" with its answers", `document.querySelector("footer time") && !/Asking for|Looking …|Counting by/.test(document.querySelector("main").innerText)`)
}

// TestConsoleIsAccessible: axe-core finds no violation on any page, in either theme, in a wide window and in a narrow
// one; nor in a dialogue, nor on a page whose figures are old.
func TestConsoleIsAccessible(t *testing.T) {
	t.Parallel()
	script := axe(t)
	r, b := everything(t)
	b.open("/")
	eval[any](b, script+"; null")
	for _, path := range everyPage {
		b.visit(path)
		b.settled(path)
		b.judge(path, wideLight, narrowDark)
	}
	b.show(func(name string) { b.judge(name, wideLight, narrowDark) })
	b.visit("/")
	b.look(narrowDark.width, narrowDark.theme)
	b.click(".menu")
	b.judge("the menu", narrowDark, window{375, "light"})
	b.click(".menu")
	b.age()
	for i, path := range everyPage {
		b.visit(path)
		b.settled(path)
		b.judge("without new figures "+path, []window{{1280, "dark"}, {375, "light"}}[i%2])
	}
	b.open("/")
	b.settled("/")
	eval[any](b, script+"; null")
	b.outlives()
	r.Stop()
	b.wait("the banner", `document.querySelector(".contact.lost")`)
	b.judge("a page without contact", wideLight, narrowDark)
}

// TestLoginIsAccessible: so is the page that asks for a token.
func TestLoginIsAccessible(t *testing.T) {
	t.Parallel()
	script := axe(t)
	file := filepath.Join(t.TempDir(), "viewer")
	weirtest.WriteFile(t, file, "a-viewer-of-weir")
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  pay: {url: %s, bucket: {rate: 4/s, capacity: 6}}
http: {tokens: {ann: {role: viewer, token: "${file:`+file+`}"}}}
`)
	r.Producer().Submit("weir.jobs.nobody.a", nil, nil)
	b := newBrowser(t, r.Worker.HTTPAddr())
	b.open("/")
	b.wait("the login", `document.querySelector("#token")`)
	eval[any](b, script+"; null")
	b.judge("the login", wideLight, narrowDark, window{1280, "dark"}, window{375, "light"})
	if dir := os.Getenv("WEIR_SCREENSHOTS"); dir != "" {
		b.everyWindow(dir, "login")
	}
	b.click("#token")
	b.press("a-viewer-of-weir\r")
	b.wait("the overview", `document.querySelector("footer time")`)
	for _, path := range []string{"/", "/letters", "/letter?seq=1", "/configuration"} {
		b.visit(path)
		b.settled(path)
		b.judge("for a viewer "+path, wideLight, narrowDark)
	}
}

// window is how a page is looked at.
type window struct {
	width int64
	theme string
}

var wideLight, narrowDark = window{1280, "light"}, window{375, "dark"}

// judge has axe-core judge what is shown, in some windows.
func (b *browser) judge(what string, windows ...window) {
	b.t.Helper()
	for _, w := range windows {
		b.look(w.width, w.theme)
		for _, found := range eval[[]string](b, `axe.run(document, { resultTypes: ["violations"], rules: { "label-content-name-mismatch": { enabled: true } } })
  .then((r) => r.violations.flatMap((v) => v.nodes.map((n) => v.id + " at " + n.target.join(" ") + ": " + n.failureSummary)))`) {
			b.t.Errorf("%s at %d pixels, %s: %s", what, w.width, w.theme, found)
		}
	}
}

// TestConsoleFitsAPhone: at 375 pixels nothing of a page is cut off, no page is wider than its window, no row says that there is no value, and
// the pages are in a menu.
func TestConsoleFitsAPhone(t *testing.T) {
	t.Parallel()
	_, b := everything(t)
	b.open("/")
	b.look(375, "light")
	for _, path := range everyPage {
		b.visit(path)
		b.settled(path)
		for _, found := range eval[[]string](b, `[...document.querySelectorAll("body *")].filter((e) => {
  const style = getComputedStyle(e), box = e.getBoundingClientRect();
  if (e.closest(".unseen, .skip, svg, textarea, thead") || box.width === 0 || e.tagName === "CAPTION") return false;
  const cut = e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 && style.overflowX !== "visible";
  return cut || box.right > innerWidth + 1 || box.left < -1;
}).map((e) => e.tagName + "." + e.className + ": " + (e.innerText ?? "").slice(0, 60))`) {
			t.Errorf("%s: cut off is %s", path, found)
		}
		for _, found := range eval[[]string](b, `[...document.querySelectorAll("main td")].filter((e) => {
  return e.checkVisibility() && (e.innerText.trim() === "–" || e.innerText.trim() === "" && !e.querySelector("svg, .meter, .progress, .pips"));
}).map((e) => e.dataset.name ?? e.className)`) {
			t.Errorf("%s: a row without a value is %s", path, found)
		}
	}
	const link = `nav a[href="/limits"]`
	if eval[bool](b, `document.querySelector(`+quote(link)+`).checkVisibility()`) {
		t.Error("the menu is open before it was asked for")
	}
	b.click(".menu")
	b.wait("the menu", `document.querySelector(".menu").ariaExpanded === "true" && document.querySelector(`+quote(link)+`).checkVisibility()`)
	b.click(link)
	b.wait("the page, without the menu", `location.pathname === "/limits" && !document.querySelector(`+quote(link)+`).checkVisibility()`)
	b.click(".menu")
	b.press(kb.Escape)
	b.wait("the menu closed by the keyboard", `document.querySelector(".menu").ariaExpanded === "false" && document.activeElement.className === "menu"`)
}
