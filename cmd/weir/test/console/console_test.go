package console

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/ops/status"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/weirtest"

	"github.com/chromedp/chromedp/kb"
)

// consoleRig is a weir whose api pay is paused, with six jobs in the bucket of a and two letters, and a browser at its console.
func consoleRig(t *testing.T) (*weirtest.Rig, *browser) {
	t.Helper()
	r := weirtest.NewRig(t, fakeapi.Options{KeepBody: 64, Key: fakeapi.KeyFrom{Segment: -1}}, `
apis:
  pay: {url: %s, price: 0.10, jitter: 20ms, bucket: {rate: 4/s, capacity: 6}, limits: [{name: account, rate: 50/s}, {name: spend, budget: 200.00/day}]}
`)
	r.CLI().Run("pause", "pay", "--why", "the test looks")
	for i := range 8 {
		r.Producer().Submit("weir.jobs.pay.a", fmt.Appendf(nil, `{"n":%d}`, i), map[string]string{"Weir-Path": "/a"})
	}
	return r, newBrowser(t, r.Worker.HTTPAddr())
}

// ofJSON is what a command prints with --json.
func ofJSON[T any](r *weirtest.Rig, args ...string) (v T) {
	r.T.Helper()
	out, code := r.CLI().Run(append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		r.T.Fatalf("weir %v: exit code %d, %v: %s", args, code, err, out)
	}
	return v
}

// TestConsoleSaysWhatCommandsSay: while nothing changes, every number of the pages is that of the command of the same question.
func TestConsoleSaysWhatCommandsSay(t *testing.T) {
	t.Parallel()
	r, b := consoleRig(t)
	b.open("/")
	b.wait("the api", `document.querySelector("[data-api=pay] [data-field=jobs]")?.textContent.startsWith("6")`)
	var api *status.API
	for _, a := range ofJSON[status.Status](r, "status").APIs {
		api = a
	}
	if api.Jobs != 6 || api.Accepted != 6 || api.Throttled != 2 || api.Called != 0 {
		t.Fatalf("the command tells %+v", api)
	}
	for field, want := range map[string]string{
		"accepted": fmt.Sprint(api.Accepted), "called": fmt.Sprint(api.Called), "throttled": fmt.Sprint(api.Throttled), "jobs": fmt.Sprint(api.Jobs),
		"in_flight": fmt.Sprint(api.InFlight), "spent_today": api.Spent,
	} {
		if got := strings.Fields(b.text("[data-api=pay] [data-field=" + field + "]"))[0]; got != want {
			t.Errorf("%s is %s on the page, and %s by the command", field, got, want)
		}
	}
	if text := b.text("[data-api=pay]"); !strings.Contains(text, "the test looks") || !strings.Contains(text, "paused") {
		t.Errorf("the page does not say why the api is paused: %s", text)
	}
	b.open("/bucket?api=pay&key=a")
	b.wait("the bucket", `document.querySelector("[data-field=depth]")`)
	shown := ofJSON[admin.KeyShown](r, "show", "pay", "a")
	if got := b.text("[data-field=depth]"); got != fmt.Sprint(shown.Depth) {
		t.Errorf("the bucket's depth is %s on the page, and %d by the command", got, shown.Depth)
	}
	jobs := eval[[]string](b, `[...document.querySelectorAll("tbody td.code")].map((td) => td.textContent)`)
	if len(jobs) != len(shown.Next) {
		t.Fatalf("the page lists %d jobs, the command %d", len(jobs), len(shown.Next))
	}
	for i, j := range shown.Next {
		if jobs[i] != j.Job {
			t.Errorf("job %d is %s on the page, and %s by the command", i, jobs[i], j.Job)
		}
	}
	b.open("/letters?reason=overflow")
	b.wait("the letters", `document.querySelectorAll("tbody tr").length === 2`)
	if got := b.text("h1"); got != "2 letters, 1 cause" {
		t.Errorf("the letters are %q", got)
	}
	r.CLI().Run("resume", "pay")
	b.open("/")
	b.wait("the calls", `document.querySelector("[data-api=pay] [data-field=called]")?.textContent.startsWith("6")`)
	r.Eventually("the spending on the page", func() bool {
		return b.text("[data-api=pay] [data-field=spent_today]") == ofJSON[status.Status](r, "status").APIs[0].Spent
	})
}

// TestConsoleShowsAnAccountsBudgetOnce checks that the page of spending shows a budget of an account once, with what
// all apis of the account spent.
func TestConsoleShowsAnAccountsBudgetOnce(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, `
accounts:
  acme: {limits: [{name: spend, budget: 5.00/day}]}
apis:
  chat: {url: "%[1]s", account: acme, price: 0.50, bucket: {rate: 100/s, capacity: 9}}
  embed: {url: "%[1]s", account: acme, price: 0.50, bucket: {rate: 100/s, capacity: 9}, limits: [{name: spend, budget: 9.00/day}]}
`)
	for _, api := range []string{"chat", "embed", "embed"} {
		r.Producer().Submit("weir.jobs."+api+".a", nil, map[string]string{"Weir-Path": "/a"})
	}
	r.Eventually("the jobs to be done", func() bool {
		return r.Store().Messages("WEIR_CALLS") == 3 && r.Store().Waiting("chat")+r.Store().Waiting("embed") == 0
	})
	b := newBrowser(t, r.Worker.HTTPAddr())
	b.open("/spend")
	b.wait("the budgets", `[...document.querySelectorAll(".card")].map((c) => c.querySelector("b").textContent + " " + c.querySelector("span").textContent).join() ===
		"acme/spend 1.50 of 5.00,embed/spend 1.00 of 9.00"`)
}

// TestConsoleByKeyboard: everything can be reached without a pointer, the focus is never lost, and the address names
// the current place.
func TestConsoleByKeyboard(t *testing.T) {
	t.Parallel()
	r, b := consoleRig(t)
	b.open("/")
	b.wait("the numbers", `document.querySelector("[data-api=pay]")`)
	b.press(kb.Tab)
	b.wait("the skip link first", `document.activeElement.classList.contains("skip")`)
	b.press(kb.Enter)
	b.press("gb")
	b.wait("the buckets", `location.pathname === "/buckets" && document.activeElement.tagName === "H1" && document.querySelector("tbody tr")`)
	b.press("j")
	b.wait("the first row", `document.activeElement.textContent === "a"`)
	before := eval[string](b, `document.querySelector("footer time").textContent`)
	b.wait("the next second", `document.querySelector("footer time").textContent !== `+quote(before))
	b.wait("the focus where it was", `document.activeElement.textContent === "a"`)
	b.press(kb.Enter)
	b.wait("the bucket", `location.search.includes("key=a") && document.querySelector("tbody td.code a")`)
	job := b.text("tbody td.code")
	b.press("/")
	b.wait("the search", `document.activeElement.id === "search"`)
	b.press(job + kb.Enter)
	b.wait("the job's story", `location.pathname === "/job" && document.querySelector("[data-state=queued]")`)
	b.press("gl")
	b.wait("the letters", `location.pathname === "/letters" && document.querySelectorAll("tbody tr").length === 2`)
	b.press("j" + kb.Enter)
	b.wait("a letter", `location.pathname === "/letter" && document.querySelector("main").innerText.includes("Reveal")`)
	b.press("?")
	b.wait("the help", `document.querySelector("dialog[open]")?.innerText.includes("Keyboard")`)
	b.press(kb.Escape)
	b.wait("the help gone", `document.querySelector("dialog") === null`)
	b.press("t")
	b.wait("the theme", `document.documentElement.dataset.theme === "light"`)
	b.press("f")
	b.wait("frozen numbers", `document.querySelector(".live").getAttribute("aria-pressed") === "true"`)
	frozen := b.text("footer time")
	r.Producer().Submit("weir.jobs.pay.other", nil, nil)
	b.press("f" + "gb")
	b.wait("live numbers", `document.querySelectorAll("tbody tr").length === 2 && document.querySelector("footer time").textContent !== `+quote(frozen))
	b.press(kb.Tab)
	if eval[bool](b, `document.activeElement === document.body`) {
		t.Error("the focus is lost")
	}
	b.open("/buckets?api=pay&order=key&text=oth") // as one that was sent by a colleague
	for path, want := range map[string]string{"/buckets?api=pay&order=key&text=oth": "other", "/letters?reason=expired": "No letter matches"} {
		b.visit(path)
		b.wait("the filters of "+path, fmt.Sprintf(`document.querySelector("main").innerText.includes(%s)`, quote(want)))
	}
}

// TestConsoleKeepsTheFocus: a link in a table keeps the focus when what stands before the table goes or comes, as the
// letters' "Counting" does when weir has counted.
func TestConsoleKeepsTheFocus(t *testing.T) {
	t.Parallel()
	_, b := consoleRig(t)
	b.open("/")
	b.wait("the module", `window.dom || (import("/console/dom.js").then((m) => window.dom = m), false)`)
	if !eval[bool](b, `(() => {
		const { h, patch } = window.dom, page = document.body.appendChild(document.createElement("div"));
		const table = () => h("div.table", {}, h("table", {}, h("tbody", {}, h("tr", { key: "2" }, h("td", {}, h("a", { href: "/letter" }, "2"))))));
		const focused = () => document.activeElement.textContent === "2" && document.activeElement === page.querySelector("a");
		patch(page, [h("p", {}, "Counting"), h("div.filters", { key: "filters" }), table()]);
		page.querySelector("a").focus();
		patch(page, [h("div.filters", { key: "filters" }), table()]);
		const went = focused();
		patch(page, [h("div.cards", {}), h("p", {}, "Counting"), h("div.filters", { key: "filters" }), table()]);
		return went && focused() && page.textContent === "Counting2";
	})()`) {
		t.Error("the focus is lost")
	}
}

// TestConsoleObeysNothingStored: markup in a payload, a key, a header and a job's id is shown as text on every page, and the browser has
// nothing to say against the page.
func TestConsoleObeysNothingStored(t *testing.T) {
	t.Parallel()
	r, b := consoleRig(t)
	const evil = `<img src=x onerror="document.body.dataset.hit=1"><script>document.body.dataset.hit=2</script>`
	key := strings.ReplaceAll(strings.ReplaceAll(evil, " ", "%20"), ".", "%2E")
	for range 7 {
		r.Producer().Submit("weir.jobs.pay."+strings.NewReplacer("<", "%3C", ">", "%3E", `"`, "%22", "=", "%3D", "/", "%2F").Replace(key), []byte(evil), map[string]string{"X-Evil": evil, "Weir-Path": "/a"})
	}
	b.open("/")
	for path, shows := range map[string]bool{
		"/": true, "/buckets": true, "/letters": true, "/letter?seq=3": true, "/events": true, "/spend?by=key": false, "/limits": false,
		"/configuration": false, "/redrives": false, "/jobs": true, "/job?id=" + "%3Cimg%20src%3Dx%3E": false,
		"/bucket?api=pay&key=" + "%3Cimg%20src%3Dx%20onerror%3D%22document.body.dataset.hit%3D1%22%3E%3Cscript%3Edocument.body.dataset.hit%3D2%3C%2Fscript%3E": true,
	} {
		b.visit(path)
		if shows {
			b.wait(path+" with the text", fmt.Sprintf(`document.querySelector("main").innerText.includes(%s)`, quote(evil)))
		} else {
			b.wait(path+" with its answer", `document.querySelector("footer time") && !document.querySelector("main").innerText.includes("Asking for")`)
		}
		if eval[bool](b, `document.body.dataset.hit !== undefined || document.querySelector("main img, main script, main iframe") !== null`) {
			t.Errorf("%s obeys what was stored", path)
		}
	}
}

// TestConsoleLogin: without a token the console shows only the login, and a wrong token is reported. A viewer sees
// everything and is offered no changes. Logging out ends access.
func TestConsoleLogin(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "viewer")
	weirtest.WriteFile(t, file, "a-viewer-of-weir")
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  pay: {url: %s, bucket: {rate: 4/s, capacity: 6}}
http: {tokens: {ann: {role: viewer, token: "${file:`+file+`}"}}}
`)
	r.Producer().Submit("weir.jobs.nobody.a", nil, nil)
	b := newBrowser(t, r.Worker.HTTPAddr())
	b.open("/letters")
	b.wait("the login", `document.querySelector("#token") && document.querySelector("nav") === null`)
	b.click("#token")
	b.press("nobodys-token-0123\r")
	b.wait("what is wrong", `document.querySelector("[role=alert].told")?.innerText.includes("Unknown token")`)
	eval[any](b, `document.querySelector("#token").select(), null`)
	b.press("a-viewer-of-weir\r")
	b.wait("the page that was asked for", `document.querySelectorAll("tbody tr").length === 1 && document.querySelector("footer time")`)
	for _, path := range []string{"/letters", "/", "/letter?seq=1", "/configuration"} {
		b.visit(path)
		b.wait(path, `document.querySelector("main h1") && !document.querySelector("main").innerText.includes("Asking for")`)
		if offered := eval[[]string](b, `[...document.querySelectorAll("main button")].map((b) => b.textContent).filter((b) => /Pause|Redrive|Purge|Reveal|Roll back/.test(b))`); len(offered) > 0 {
			t.Errorf("%s offers a viewer %v", path, offered)
		}
	}
	eval[any](b, `[...document.querySelectorAll(".tools button")].find((b) => b.textContent === "Log out").click(), null`)
	b.wait("the login again", `document.querySelector("#token") && document.querySelector("nav") === null`)
	if b.text("#token") != "" || eval[string](b, `document.querySelector("#token").value`) != "" {
		t.Error("the token stands in the field still")
	}
}
