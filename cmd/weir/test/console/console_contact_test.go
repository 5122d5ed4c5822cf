package console

import (
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/referee"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"
)

// TestConsoleSaysThatWeirIsGone: when weir is gone the console says so on every page, in words and in red, and calls nothing healthy; each
// figure is marked as old. How soon is TestConsoleKnowsOfNoContact's.
func TestConsoleSaysThatWeirIsGone(t *testing.T) {
	t.Parallel()
	r, b := consoleRig(t)
	b.open("/")
	b.wait("the numbers", `document.querySelector("[data-api=pay]") && document.querySelector(".told.good")`)
	if b.text(".contact") != "" || eval[bool](b, `document.documentElement.classList.contains("old")`) {
		t.Error("the figures of this second are called old")
	}
	b.outlives()
	r.Stop()
	b.wait("the banner", `document.querySelector(".contact.lost")?.innerText.includes("Cannot reach weir since")`)
	text := b.text("#page")
	// The page may have asked once more while weir stopped. TestConsoleSaysSoonThatWeirWasKilled has no such last answer.
	last := strings.Contains(text, "no replica accepts jobs")
	if strings.Contains(text, "Healthy.") || !last && !strings.Contains(text, "Was healthy at") {
		t.Errorf("the page says:\n%s", text)
	}
	for _, path := range []string{"/buckets", "/limits"} {
		b.visit(path)
		b.wait("the banner at "+path, `document.querySelector(".contact.lost") && document.documentElement.classList.contains("old")`)
	}
}

// TestConsoleSaysSoonThatWeirWasKilled: within four seconds after a kill -9 the banner is there, as far as the machine lets the browser draw it.
func TestConsoleSaysSoonThatWeirWasKilled(t *testing.T) {
	const most = 4 * time.Second
	listen, heldUp := servers.FreePort(t), referee.MeasureHeldUp(t)
	r := weirtest.NewKillRig(t, fakeapi.Options{}, `
apis:
  pay: {url: %s, bucket: {rate: 4/s, capacity: 6}}
`, "WEIR_HTTP_LISTEN="+listen)
	await.Until(t, "weir", r.NC.IsConnected)
	b := newBrowser(t, listen)
	b.open("/")
	b.wait("the numbers", `document.querySelector(".told.good")`)
	eval[any](b, `(window.banner = new Promise((done) => {
  new MutationObserver(() => document.querySelector(".contact.lost") && done(Date.now())).observe(document.body, { subtree: true, childList: true });
}), null)`)
	b.outlives()
	killed := time.Now()
	r.Proc.Kill()
	took := time.UnixMilli(int64(eval[float64](b, `window.banner`))).Sub(killed)
	if took > most+heldUp.Worst() {
		t.Errorf("the banner comes %s after the kill; the machine held programs up for %s", took, heldUp.Worst())
	}
	if text := b.text("body"); strings.Contains(text, "Healthy.") || !strings.Contains(text, "Was healthy at") || !strings.Contains(text, "Cannot reach weir since") {
		t.Errorf("the page says:\n%s", text)
	}
}
