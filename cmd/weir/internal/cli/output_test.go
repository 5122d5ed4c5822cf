package cli

import (
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/terminal"
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

// TestTableAligns: columns stand below each other whatever is written in them.
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
