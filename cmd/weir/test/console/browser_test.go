package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/cmd/weir/weirtest"
	"weir/ingest/await"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// browser is a tab of a real browser, without a window, at the console of a rig. Only its methods drive Chromium.
type browser struct {
	t    *testing.T
	ctx  context.Context //nolint:containedctx // chromedp keeps its tab in it
	base string

	mu   sync.Mutex // of said
	said []string   // errors, exceptions and breaches of the policy
	gone bool       // weir has been stopped: that the browser does not reach it is no error
}

// chromium is the one process of Chromium in which the tests have their tabs. Main ends it.
var chromium struct {
	once  sync.Once
	ctx   context.Context //nolint:containedctx // chromedp keeps the browser in it
	end   func()
	error error
}

// startChromium starts Chromium in a profile of its own. Its first tab stays empty.
func startChromium() {
	c := &chromium
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		c.error = errors.New("the tests of the console drive a real browser: install Chromium (apt-get install --no-install-recommends chromium; `make chromium` does)")
		return
	}
	profile, err := os.MkdirTemp("", "weir-browser-")
	if err != nil {
		c.error = err
		return
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.UserDataDir(profile),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.WindowSize(1280, 900))
	allocated, end := chromedp.NewExecAllocator(context.Background(), options...)
	c.ctx, _ = chromedp.NewContext(allocated)
	c.end = func() {
		closing, cancel := context.WithTimeout(c.ctx, await.Patience)
		defer cancel()
		_ = chromedp.Cancel(closing)
		end()
		// Chromium's child processes may write to the profile for a moment after Chromium has ended.
		tick, tries := time.NewTicker(20*time.Millisecond), 100
		defer tick.Stop()
		for range tick.C {
			if tries--; os.RemoveAll(profile) == nil || tries == 0 {
				return
			}
		}
	}
	// The browser ends with the context of its first Do, so this Do has the browser's own context.
	if err := chromedp.Do(c.ctx, chromedp.Navigate("about:blank")); err != nil {
		c.error = fmt.Errorf("start %s: %w", path, err)
	}
}

// newBrowser opens a tab with cookies and storage of its own. An error in the tab's console fails the test at its end.
func newBrowser(t *testing.T, addr string) *browser {
	t.Helper()
	if chromium.once.Do(startChromium); chromium.error != nil {
		t.Fatal(chromium.error)
	}
	ctx, closeTab := chromedp.NewContext(chromium.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(closeTab)
	b := &browser{t: t, ctx: ctx, base: "http://" + addr}
	// The tab ends with the context of the first call, so that must be the tab's own context.
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	messages := chromedp.Console(ctx)
	listening := make(chan struct{})
	go func() {
		defer close(listening)
		for m, err := range messages {
			if err != nil {
				return
			}
			b.hear(string(m.Type), m.Text+" "+m.URL)
		}
	}()
	t.Cleanup(func() {
		await.Return(t, "the end of the tab", func() { _ = chromedp.Cancel(ctx) })
		await.Receive(t, "the end of its console", listening)
		for _, s := range b.heard() {
			t.Errorf("the browser's console says: %s", s)
		}
	})
	return b
}

// hear collects messages that must not appear in a browser's console. Answers such as "not found", "cannot be called"
// and "no token" are normal.
func (b *browser) hear(kind, text string) {
	noJob := strings.Contains(text, "status of 400") && strings.Contains(text, "/api/v1/jobs/")
	if kind != "error" && kind != "exception" && kind != "warning" || noJob || strings.Contains(text, "status of 404") || strings.Contains(text, "status of 401") {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone && strings.Contains(text, "net::ERR_") {
		return
	}
	b.said = append(b.said, kind+": "+text)
}

// outlives says that weir is stopped from now on.
func (b *browser) outlives() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone = true
}

func (b *browser) heard() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string{}, b.said...)
}

func (b *browser) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := b.try(steps...); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

func (b *browser) try(steps ...chromedp.Action[chromedp.Void]) error {
	ctx, cancel := context.WithTimeoutCause(b.ctx, weirtest.Patience, fmt.Errorf("the browser took longer than %s", weirtest.Patience))
	defer cancel()
	return chromedp.Do(ctx, steps...)
}

// open goes to an address of the console and waits for its page. On a busy machine the browser may abort that for the
// sake of the tab's first page, which is still on its way: then open goes there once more.
func (b *browser) open(path string) {
	b.t.Helper()
	err := b.try(chromedp.Navigate(b.base + path))
	if err != nil && strings.Contains(err.Error(), "net::ERR_ABORTED") {
		err = b.try(chromedp.Navigate(b.base + path))
	}
	if err != nil {
		b.t.Fatalf("open %s: %v", path, err)
	}
	b.wait("the page "+path, `document.querySelector("main h1") !== null`)
}

// visit goes on to another page as a link does, without a new document.
func (b *browser) visit(path string) {
	b.t.Helper()
	eval[any](b, fmt.Sprintf(`history.pushState(null, "", %s), dispatchEvent(new Event("moved")), null`, quote(path)))
	b.wait("the page "+path, `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(document.querySelector("main h1") !== null))))`)
}

// eval is what an expression gives, as JSON carries it.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeoutCause(b.ctx, weirtest.Patience, fmt.Errorf("the browser took longer than %s", weirtest.Patience))
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// wait polls until an expression is true.
func (b *browser) wait(what, expression string) {
	b.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(weirtest.Patience)
	for !eval[bool](b, "Promise.resolve("+expression+").then(Boolean)") {
		select {
		case <-tick.C:
		case <-limit:
			b.t.Fatalf("waited %s in vain for %s; the page says:\n%s\n%v", weirtest.Patience, what, b.text("body"), b.heard())
		}
	}
}

// press types keys as a keyboard does. The page sees a key going down before its character, and may suppress the
// character.
func (b *browser) press(keys string) {
	b.t.Helper()
	// All events have the same time: what a page takes for one word must not depend on how long this machine takes for it.
	at := input.TimeSinceEpoch(float64(time.Now().UnixNano()) / 1e9)
	for _, r := range keys {
		down := *kb.Encode(r)[0]
		down.Timestamp = at
		up := down
		down.Type, up.Type = input.DispatchKeyEventTypeKeyDown, input.DispatchKeyEventTypeKeyUp
		if k, ok := kb.Keys[r]; ok && (k.Print || r == '\r') {
			down.Text, down.UnmodifiedText = k.Text, k.Unmodified
		}
		for _, event := range []input.DispatchKeyEventParams{down, up} {
			if _, err := chromedp.Call(b.ctx, input.DispatchKeyEvent, event); err != nil {
				b.t.Fatalf("press %q: %v", r, err)
			}
		}
	}
}

// click presses what a selector names once it is there, enabled and not covered. The page looks and presses in one step: between a look and a
// mouse that comes later the page may have been drawn anew.
func (b *browser) click(selector string) {
	b.t.Helper()
	b.wait(selector+" to press", fmt.Sprintf(`(() => {
		const e = document.querySelector(%s);
		if (!e || e.disabled) return false;
		e.scrollIntoView({block: "center", behavior: "instant"});
		const r = e.getBoundingClientRect(), top = document.elementFromPoint(r.left + r.width / 2, r.top + r.height / 2);
		if (!top || !e.contains(top) && !top.contains(e)) return false;
		e.focus({preventScroll: true});
		e.click();
		return true;
	})()`, quote(selector)))
}

// look has a page drawn for a window of a width, in a theme.
func (b *browser) look(width int64, theme string) {
	b.t.Helper()
	b.do("a window", chromedp.EmulateViewport(width, 900))
	eval[any](b, fmt.Sprintf(`(document.documentElement.dataset.theme = %s, null)`, quote(theme)))
	b.wait("it drawn", `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`)
}

// text is what stands there for a reader, "" where nothing does.
func (b *browser) text(selector string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf(`document.querySelector(%s)?.innerText ?? ""`, quote(selector)))
}

// quote writes a text for a script.
func quote(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		panic("a text that JSON cannot carry: " + err.Error())
	}
	return string(data)
}
