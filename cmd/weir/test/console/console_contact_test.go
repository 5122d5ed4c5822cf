package console

import (
	"strings"
	"testing"
)

// TestConsoleSaysThatWeirIsGone: when weir is gone the console says so on every page, in words and in red, and calls nothing healthy; each
// figure is marked as old. How soon is TestConsoleKnowsOfNoContact's.
func TestConsoleSaysThatWeirIsGone(t *testing.T) {
	r, b := consoleRig(t)
	b.open("/")
	b.wait("the numbers", `document.querySelector("[data-api=pay]") && document.querySelector(".told.good")`)
	if b.text(".contact") != "" || eval[bool](b, `document.documentElement.classList.contains("old")`) {
		t.Error("the figures of this second are called old")
	}
	b.outlives()
	r.Stop()
	b.wait("the banner", `document.querySelector(".contact.lost")?.innerText.includes("Cannot reach weir since")`)
	if text := b.text("#page"); strings.Contains(text, "Healthy.") || !strings.Contains(text, "Was healthy at") {
		t.Errorf("the page says:\n%s", text)
	}
	for _, path := range []string{"/buckets", "/limits"} {
		b.visit(path)
		b.wait("the banner at "+path, `document.querySelector(".contact.lost") && document.documentElement.classList.contains("old")`)
	}
}
