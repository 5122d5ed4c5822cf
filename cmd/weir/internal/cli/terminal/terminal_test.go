package terminal_test

import (
	"testing"

	"weir/cmd/weir/internal/cli/terminal"
)

// TestColumns checks that Columns counts columns of a terminal and not characters.
func TestColumns(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "vip-1": 5, "Zoë": 3, "Zoe\u0308": 3, "顧客": 4, "ｶﾅ": 2, "Ａ": 2, "🍕": 2, "👩‍🚀": 2, "🇯🇵": 2, "ลูกค้า": 4, "한국": 4,
	} {
		if got := terminal.Columns(text); got != want {
			t.Errorf("%q takes %d columns, want %d", text, got, want)
		}
	}
}

// TestCut checks that Cut cuts between graphemes, and that the result takes no more columns than allowed.
func TestCut(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"customer", 0, "customer"},
		{"customer", 8, "customer"},
		{"customer", 5, "cust…"},
		{"顧客番号", 8, "顧客番号"},
		{"顧客番号", 7, "顧客番…"},
		{"顧客番号", 6, "顧客…"},
		{"Zoe\u0308Zoe\u0308", 4, "Zoe\u0308…"},
		{"👩‍🚀👩‍🚀", 3, "👩‍🚀…"},
		{"ab", 1, "…"},
	} {
		if got := terminal.Cut(c.text, c.most); got != c.want || c.most > 0 && terminal.Columns(got) > c.most {
			t.Errorf("%q in %d columns is %q, want %q", c.text, c.most, got, c.want)
		}
	}
}
