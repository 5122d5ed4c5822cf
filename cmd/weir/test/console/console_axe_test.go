package console

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"

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
	r := weirtest.NewRig(t, fakeapi.Options{KeepBody: 64, Key: fakeapi.KeyFrom{Segment: -1}}, `
apis:
  pay: {url: %s, price: 0.10, jitter: 20ms, bucket: {rate: 4/s, capacity: 6}, limits: [{name: account, rate: 50/s}, {name: spend, budget: 0.30/day}]}
  sms-with-a-long-name-of-a-gateway: {url: %[1]s, bucket: {rate: 1/h, capacity: 3}, limits: [{name: a-quota-of-the-gateway, quota: 20/day}]}
`)
	for i := range 8 {
		r.Submit("weir.jobs.pay.customer-with-a-long-name-0123456789-0123456789", fmt.Appendf(nil, `{"n":%d}`, i), map[string]string{"Weir-Path": "/a", "Nats-Msg-Id": fmt.Sprintf("order-%d", i)})
		r.Submit("weir.jobs.sms-with-a-long-name-of-a-gateway.k", nil, map[string]string{"Weir-Path": "/k"})
	}
	r.AwaitCalls(4)
	r.Command("dead", "redrive", "--api", "pay", "--rate", "100/s", "--yes")
	file := filepath.Join(t.TempDir(), "second.yaml")
	weirtest.WriteFile(t, file, strings.ReplaceAll(r.YAML, "capacity: 3", "capacity: 4"))
	if said, code := r.Command("config", "apply", "-f", file, "--yes"); code != 0 {
		t.Fatalf("config apply ends with %d: %s", code, said)
	}
	r.Command("pause", "sms-with-a-long-name-of-a-gateway", "--why", "the test looks")
	return r, newBrowser(t, r.Worker.HTTPAddr())
}

// everyPage are the addresses of all pages of everything, some of them as an operator's work leaves them.
var everyPage = []string{
	"/", "/buckets", "/buckets?api=pay", "/bucket?api=pay&key=customer-with-a-long-name-0123456789-0123456789", "/bucket?api=pay&key=none", "/letters", "/letter?seq=1",
	"/redrives", "/jobs", "/jobs?state=dead&api=pay&status=5xx", "/jobs?state=waiting", "/job", "/job?id=order-0", "/job?id=order-1", "/job?id=none", "/limits", "/spend", "/replicas", "/doctor", "/configuration", "/configuration?propose=1", "/configuration?from=1&to=2", "/events",
}

// settled waits until a page has its answers.
func (b *browser) settled(path string) {
	b.t.Helper()
	b.wait(path+" with its answers", `document.querySelector("footer time") && !/Asking for|Looking …|Counting by/.test(document.querySelector("main").innerText)`)
}

// TestConsoleIsAccessible: axe-core finds no violation on any page, in either theme, in a wide window and in a narrow one.
func TestConsoleIsAccessible(t *testing.T) {
	t.Parallel()
	script := axe(t)
	r, b := everything(t)
	b.open("/")
	eval[any](b, script+"; null")
	for _, path := range everyPage {
		b.visit(path)
		b.settled(path)
		b.judge(path)
	}
	b.outlives()
	r.Stop()
	b.visit("/")
	b.wait("the banner", `document.querySelector(".contact.lost")`)
	b.judge("a page without contact")
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
	b := newBrowser(t, r.Worker.HTTPAddr())
	b.open("/")
	b.wait("the login", `document.querySelector("#token")`)
	eval[any](b, script+"; null")
	b.judge("the login")
}

// judge has axe-core judge what is shown, in windows of two widths and in both themes.
func (b *browser) judge(what string) {
	b.t.Helper()
	for _, width := range []int64{1280, 375} {
		for _, theme := range []string{"light", "dark"} {
			b.look(width, theme)
			for _, found := range eval[[]string](b, `axe.run(document, { resultTypes: ["violations"], rules: { "label-content-name-mismatch": { enabled: true } } })
  .then((r) => r.violations.flatMap((v) => v.nodes.map((n) => v.id + " at " + n.target.join(" ") + ": " + n.failureSummary)))`) {
				b.t.Errorf("%s at %d pixels, %s: %s", what, width, theme, found)
			}
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
