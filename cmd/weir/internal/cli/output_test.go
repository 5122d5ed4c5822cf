package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/cli/terminal"
)

func TestBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", time.Microsecond: "<1ms", 40*time.Millisecond + 1: "40ms", 3210 * time.Millisecond: "3.2s",
		30 * time.Second: "30s", time.Minute: "1m", 140 * time.Second: "2m20s", 5*time.Minute + 10*time.Second: "5m10s",
		time.Hour: "1h0m", 200 * time.Minute: "3h20m", 47 * time.Hour: "47h0m", 300 * time.Hour: "12d",
	} {
		if got := Brief(d); got != want {
			t.Errorf("%s is written as %s, want %s", d, got, want)
		}
	}
}

// TestTableAligns checks that the columns of a table are aligned, whatever the cells contain.
func TestTableAligns(t *testing.T) {
	var out strings.Builder
	table := &Table{}
	table.Row("KEY", "DEPTH")
	for _, key := range []string{"vip-1", "顧客-7", "Zoe\u0308", "🍕"} {
		table.Row(key, "1")
	}
	if err := table.Print(&out); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		before, _, _ := strings.Cut(strings.Replace(line, "DEPTH", "1", 1), "1\n")
		if got := terminal.Columns(before); got != len("顧客")/3*2+len("-7  ") {
			t.Errorf("the second column begins at %d in %q", got, line)
		}
	}
}

// TestInert checks that an api's answer cannot move a terminal's cursor, set its title or hide text. JSON stays valid
// and means the same.
func TestInert(t *testing.T) {
	for text, want := range map[string]string{
		"plain é 世\n\ttext\n":           "plain é 世\n\ttext\n",
		"\x1b]0;title\x07\x1b[2J":       `\u001b]0;title\u0007\u001b[2J`,
		"over\rwritten\x7f":             `over\u000dwritten\u007f`,
		"c1 \u009b2J raw \x9b2J":        `c1 \u009b2J raw \x9b2J`,
		"bidi \u202e tag \U000e0041":    `bidi \u202e tag \udb40\udc41`,
		"\ufffd is itself, \xff is not": "\ufffd is itself, \\xff is not",
	} {
		if got := string(inert([]byte(text))); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
	said := "\u009b2J\u202e\x7f \U000e0041\"\\ é"
	line, err := json.Marshal(said)
	if err != nil {
		t.Fatal(err)
	}
	var back string
	if err := json.Unmarshal(inert(line), &back); err != nil || back != said {
		t.Errorf("%s says %q, %v", inert(line), back, err)
	}
}
