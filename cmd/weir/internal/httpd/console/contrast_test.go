package console

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"testing"
)

// TestContrast checks the contrast in both themes. Text has at least 4.5 to 1 on everything that it stands on.
// Drawings, borders of controls and the focus have at least 3 to 1 (WCAG 2.2, 1.4.3 and 1.4.11). The dark theme that a
// user chooses is the same as the system's.
func TestContrast(t *testing.T) {
	css, err := web.ReadFile("web/base.css")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile(`(?s):root(\[data-theme=dark\]|:not\(\[data-theme=light\]\))?\{(.*?)\}`).FindAllStringSubmatch(string(css), -1)
	if len(blocks) != 3 {
		t.Fatalf("%d themes", len(blocks))
	}
	light, dark, system := colours(blocks[0][2]), colours(blocks[1][2]), colours(blocks[2][2])
	for name := range light {
		if dark[name] == "" || dark[name] != system[name] {
			t.Errorf("--%s is %q in the dark theme and %q where the system is dark", name, dark[name], system[name])
		}
	}
	for theme, c := range map[string]map[string]string{"light": light, "dark": dark} {
		for _, pair := range contrasts() {
			if got := ratio(t, c[pair.of], c[pair.on]); got < pair.least {
				t.Errorf("%s: --%s on --%s has a contrast of %.2f, less than %.1f", theme, pair.of, pair.on, got, pair.least)
			}
		}
	}
}

type contrast struct {
	of, on string
	least  float64
}

func contrasts() (all []contrast) {
	const text, drawn = 4.5, 3
	for _, on := range []string{"back", "card", "field", "code", "hover"} {
		for _, of := range []string{"text", "quiet", "accent", "dead"} {
			all = append(all, contrast{of, on, text})
		}
	}
	for _, chip := range []string{"calm", "good", "held", "dead", "unknown"} {
		all = append(all, contrast{chip, chip + "-back", text})
	}
	for _, of := range []string{"text", "quiet"} {
		all = append(all, contrast{of, "calm-back", text}) // the current page in the navigation
	}
	all = append(all, contrast{"on-accent", "accent", text}, contrast{"on-dead", "dead", text})
	for _, of := range []string{"accent", "wall", "water-line", "full", "came", "left", "good-line", "held", "dead"} {
		all = append(all, contrast{of, "card", drawn}, contrast{of, "back", drawn})
	}
	for _, of := range []string{"left", "held", "dead", "good-line"} {
		all = append(all, contrast{of, "track", drawn - 0.6}) // a meter, whose number stands beside it
	}
	return all
}

func colours(block string) map[string]string {
	c := map[string]string{}
	for _, m := range regexp.MustCompile(`--([\w-]+):(#[0-9a-fA-F]{3,6})\b`).FindAllStringSubmatch(block, -1) {
		c[m[1]] = m[2]
	}
	return c
}

// ratio returns WCAG's contrast of two colours.
func ratio(t *testing.T, a, b string) float64 {
	t.Helper()
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	hex := colour[min(1, len(colour)):]
	if len(hex) == 3 {
		hex = fmt.Sprintf("%c%c%c%c%c%c", hex[0], hex[0], hex[1], hex[1], hex[2], hex[2])
	}
	n, err := strconv.ParseUint(hex, 16, 24)
	if err != nil || len(hex) != 6 {
		t.Fatalf("%q is no colour", colour)
	}
	part := func(shift int) float64 {
		c := float64(n>>shift&0xff) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	return 0.2126*part(16) + 0.7152*part(8) + 0.0722*part(0)
}
