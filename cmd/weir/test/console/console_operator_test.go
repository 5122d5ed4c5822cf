package console

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weir/cmd/weir/internal/ops/spend"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/weirtest"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
)

// attach puts a file into a field.
func (b *browser) attach(selector, file string) {
	b.t.Helper()
	b.do("attach to "+selector, chromedp.SetUploadFiles(chromedp.CSS(selector), []string{file}))
}

// fill types a text into a field.
func (b *browser) fill(selector, text string) {
	b.t.Helper()
	eval[any](b, fmt.Sprintf(`(() => { const f = document.querySelector(%s); f.focus(); f.value = %s; f.dispatchEvent(new Event("input", {bubbles: true})); return null })()`, quote(selector), quote(text)))
}

// TestConsoleProposesAConfiguration: a pasted configuration is checked and compared, errors are shown by line, and it
// takes effect when the user confirms it. Before that, limits are tried on recorded arrivals.
func TestConsoleProposesAConfiguration(t *testing.T) {
	t.Parallel()
	r, b := consoleRig(t)
	b.open("/configuration?propose=1")
	b.wait("what is in force", `document.querySelector("#proposal-yaml")?.value.includes("capacity: 6")`)
	text := eval[string](b, `document.querySelector("#proposal-yaml").value`)
	b.fill("#proposal-yaml", strings.Replace(text, "rate: 4/s", "rates: 4/s", 1))
	b.click("section[aria-labelledby=proposal-title] .actions button")
	b.wait("what is wrong", `/line 3.*rates/s.test(document.querySelector("main .told.bad")?.innerText)`)
	b.fill("#proposal-yaml", strings.Replace(text, "capacity: 6", "capacity: 9", 1))
	b.wait("the old word gone", `document.querySelector("main .told.bad") === null`)
	b.click("section[aria-labelledby=proposal-title] .actions button")
	b.wait("the difference", `document.querySelector("main .diff")?.innerText.includes("9")`)
	b.click("section[aria-labelledby=proposal-title] button.main")
	b.wait("the question", `document.querySelector("dialog[open] .diff")`)
	b.click("dialog button.main")
	b.wait("it in force", `document.querySelector("dialog") === null && document.querySelector("main pre")?.textContent.includes("capacity: 9")`)
	if shown := ofJSON[admin.KeyShown](r, "show", "pay", "a"); shown.Capacity != 9 {
		t.Errorf("the bucket's capacity is %d", shown.Capacity)
	}
	trace := filepath.Join(t.TempDir(), "trace.csv")
	weirtest.WriteFile(t, trace, "time,key\n0,a\n0.1,a\n0.2,a\n0.3,a\n")
	b.open("/configuration?propose=1")
	b.wait("the form", `document.querySelector("#trial-file")`)
	b.attach("#trial-file", trace)
	b.fill("#trial-rate", "1/s")
	b.fill("#trial-capacity", "2")
	b.click("section[aria-labelledby=trial-title] button")
	b.wait("what would have happened", `/overflowed\s+1/.test(document.querySelector("section[aria-labelledby=trial-title]").innerText)`)
}

// TestConsoleMovesLetters: letters go out as a file, a purge deletes them, and the file brings them back; a key that no path can hold has
// its page and can be paused.
func TestConsoleMovesLetters(t *testing.T) {
	t.Parallel()
	r, b := consoleRig(t)
	b.open("/letters?reason=overflow")
	b.wait("the way out", `document.querySelector("main a[download]")`)
	file := filepath.Join(t.TempDir(), "letters.jsonl")
	exported := eval[string](b, `fetch(document.querySelector("main a[download]").getAttribute("href")).then((a) => a.text())`)
	weirtest.WriteFile(t, file, exported)
	if lines := strings.Count(exported, "\n"); lines != 2 {
		t.Fatalf("%d letters are exported: %s", lines, exported)
	}
	b.click("main .actions button.danger")
	b.wait("the count", `document.querySelector("dialog")?.innerText.includes("2 letters")`)
	b.click("dialog button.main")
	b.wait("no letter, and only the way in", `document.querySelector("dialog") === null && document.querySelector("main .empty") &&
		document.querySelectorAll("main .actions button").length === 1`) // the list and its counts are asked for one by one
	b.click("main .actions button")
	b.attach("#import-file", file)
	b.wait("what can be imported", `document.querySelector("dialog").innerText.includes("2 letters can be imported")`)
	b.click("dialog button.main")
	b.wait("the letters again", `document.querySelector("dialog") === null && document.querySelectorAll("tbody tr").length === 2`)

	r.Producer().Submit("weir.jobs.pay.%2E%2E", []byte("{}"), map[string]string{"Weir-Path": "/a"})
	b.open("/bucket?api=pay&key=..")
	b.wait("the bucket of ..", `document.querySelector("[data-field=depth]")?.textContent === "1"`)
	if code, answer := r.HTTP().Say("POST", "/api/v1/apis/pay/key/pause?key=..", "", `{"why": "it has dots"}`); code != 200 {
		t.Errorf("the key .. cannot be paused: %d %s", code, answer)
	}
	r.CLI().Run("resume", "pay")
	b.wait("it paused, and alone", `document.querySelector("main").innerText.includes("it has dots")`)
	b.click("main .actions button")
	b.click("dialog button.main")
	r.AwaitCalls(7)
	for _, path := range []string{"/api/v1/apis/pay/key/pause", "/api/v1/apis/pay/key/pause?key="} {
		if code, answer := r.HTTP().Say("POST", path, "", ""); code != 400 {
			t.Errorf("%s is %d %s", path, code, answer)
		}
	}
	b.open("/limits")
	b.click("section[aria-label=Proof] button")
	b.wait("the verdict", `/There is no such call yet|no call yet|Worst window/.test(document.querySelector("section[aria-label=Proof]").innerText)`)
}

// TestConsoleAsAReaderHearsIt: what a screen reader is given. Each page has one main region, one heading of the first
// level, one navigation and a search with names; every control, figure and table has a name; headings leave no level
// out; what changes by itself is announced; the focus goes through the page in its order, and never nowhere. Each
// figure that is old is marked. The spending is that of the command. WEIR_SCREENSHOTS names a directory for pictures of
// all pages.
func TestConsoleAsAReaderHearsIt(t *testing.T) {
	t.Parallel()
	r, b := everything(t)
	b.open("/")
	for _, page := range everyPage {
		b.visit(page)
		b.settled(page)
		b.checkTree(page)
		b.checkFocus(page)
		if page == "/spend" {
			b.checkSpend(ofJSON[spend.Account](r, "spend"))
		}
	}
	if dir := os.Getenv("WEIR_SCREENSHOTS"); dir != "" {
		b.screenshots(dir)
	}
	b.visit("/")
	b.age()
	for _, page := range everyPage {
		b.visit(page)
		b.settled(page)
		for _, text := range eval[[]string](b, unmarked) {
			t.Errorf("%s shows as new: %s", page, text)
		}
	}
	newest := eval[float64](b, `Date.parse(document.querySelector(".contact time").dateTime) - Date.now()`)
	if said := b.text(".contact"); !strings.Contains(said, "No figure on this page is newer than") || newest > 0 {
		t.Errorf("the banner says %q", said)
	}
}

// unmarked tells the figures that are not marked as old: texts with a digit in the page and in the counts of the head,
// and drawings.
const unmarked = `(() => {
  const out = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!/\d/.test(walk.currentNode.data) || !e.closest("main, nav .chip") || e.closest("input, select, textarea, .command, kbd")) continue;
    if (getComputedStyle(e).fontStyle !== "italic") out.push(e.tagName + "." + e.className + ": " + walk.currentNode.data);
  }
  for (const e of document.querySelectorAll("main :is([role=img]:not(.empty *), .meter, .progress)")) {
    if (e.checkVisibility() && getComputedStyle(e).opacity === "1") out.push(e.tagName + "." + e.getAttribute("class") + " is drawn as ever");
  }
  return out;
})()`

// checkSpend compares the page of spending with the answer of the command.
func (b *browser) checkSpend(a spend.Account) {
	b.t.Helper()
	if a.Reused != 1 || a.Saved != "0.25" || a.Usage["input_tokens"] == 0 {
		b.t.Errorf("weir spend tells %+v", a)
	}
	for field, want := range map[string]string{
		"spent": a.Spent, "Reused": strconv.FormatInt(a.Reused, 10), "Saved": a.Saved,
		"input_tokens": strconv.FormatInt(a.Usage["input_tokens"], 10),
	} {
		if got := b.text("[data-field=" + field + "]"); got != want {
			b.t.Errorf("%s is %q on the page, and %q by the command", field, got, want)
		}
	}
	for _, g := range a.Groups {
		want := []string{strconv.FormatInt(g.Reused, 10), cmp.Or(g.Saved, "–"), strconv.FormatInt(g.Usage["input_tokens"], 10)}
		got := eval[[]string](b, fmt.Sprintf(`[...[...document.querySelectorAll("main tbody tr")].find((tr) => tr.cells[0].textContent === %s)?.cells ?? []]
  .filter((c) => ["Reused", "Saved", "input_tokens"].includes(c.dataset.name)).map((c) => c.textContent)`, quote(g.API)))
		if !slices.Equal(got, want) {
			b.t.Errorf("the line of %s says %q, and the command %q", g.API, got, want)
		}
	}
}

// namedRoles are those that must have a name.
var namedRoles = []string{"button", "link", "textbox", "searchbox", "combobox", "checkbox", "img", "image", "table", "navigation", "search", "progressbar", "meter", "region", "group", "dialog"}

// checkTree looks at the accessibility tree.
func (b *browser) checkTree(page string) {
	b.t.Helper()
	tree, err := chromedp.Call(b.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		b.t.Fatal(err)
	}
	count, level := map[string]int{}, 0
	for _, n := range tree.Nodes {
		if n.Ignored || n.Role == nil {
			continue
		}
		role, name := valueOf(n.Role), valueOf(n.Name)
		count[role]++
		if slices.Contains(namedRoles, role) && strings.TrimSpace(name) == "" {
			b.t.Errorf("%s: a %s has no name", page, role)
		}
		if role != "heading" {
			continue
		}
		for _, p := range n.Properties {
			if string(p.Name) != "level" {
				continue
			}
			var now int
			if _, err := fmt.Sscan(valueOf(p.Value), &now); err != nil || now > level+1 {
				b.t.Errorf("%s: the heading %q has level %d after %d: %v", page, name, now, level, err)
			}
			level = now
			if now == 1 {
				count["title"]++
			}
		}
	}
	for _, one := range []string{"main", "navigation", "banner", "contentinfo", "title"} {
		if want := 1; count[one] != want && (one != "navigation" || count[one] < 1) {
			b.t.Errorf("%s has %d of %s", page, count[one], one)
		}
	}
	if live := eval[int](b, `document.querySelectorAll("[aria-live], [role=status], [role=alert]").length`); live == 0 {
		b.t.Errorf("%s announces nothing", page)
	}
}

// valueOf is a value of the tree as text.
func valueOf(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	return strings.Trim(string(v.Value), `"`)
}

// checkFocus goes through a page by Tab: each stop is seen, in the order of the document, and none twice before the end.
func (b *browser) checkFocus(page string) {
	b.t.Helper()
	wrong := eval[string](b, `(() => {
  const can = [...document.querySelectorAll("a[href], button, input, select, textarea, [tabindex]")].filter((e) => !e.disabled && e.tabIndex >= 0 && e.checkVisibility());
  const out = [];
  for (const e of can) {
    if (e.tabIndex > 0) out.push(e.outerHTML.slice(0, 80) + " has an order of its own");
    e.focus();
    if (document.activeElement !== e) out.push(e.outerHTML.slice(0, 80) + " takes no focus");
  }
  document.querySelector("main h1").focus();
  return out.join("\n");
})()`)
	if wrong != "" {
		b.t.Errorf("%s: %s", page, wrong)
	}
}

// screenshots are all pages in both themes, wide and narrow, and what clicks show, and pages whose figures are old.
func (b *browser) screenshots(dir string) {
	b.t.Helper()
	name := strings.NewReplacer("/", "_", "?", "_", "&", "_", "=", "-")
	for _, page := range everyPage {
		b.visit(page)
		b.settled(page)
		b.everyWindow(dir, name.Replace(page))
	}
	b.show(func(name string) { b.everyWindow(dir, "shown-"+name) })
	b.visit("/")
	b.age()
	for _, page := range []string{"/", "/jobs", "/job?id=order-0", "/redrives"} {
		b.visit(page)
		b.settled(page)
		b.everyWindow(dir, "old"+name.Replace(page))
	}
	b.open("/")
	b.settled("/")
}

// everyWindow takes pictures of what is shown, in both themes, wide and narrow.
func (b *browser) everyWindow(dir, name string) {
	b.t.Helper()
	for _, w := range []window{{1440, "dark"}, {1440, "light"}, {390, "dark"}, {390, "light"}} {
		b.look(w.width, w.theme)
		picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
		if err != nil {
			b.t.Fatal(err)
		}
		weirtest.WriteFile(b.t, filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, w.width, w.theme)), string(picture))
	}
}
