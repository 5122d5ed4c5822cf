package help

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestRender(t *testing.T) {
	const markdown = "# jobs: what a job says\n\n" +
		"A paragraph that is **so** long that it takes two lines, and\nnames `a command` and [limits](limits.md).\n\n" +
		"- an item that is too long for a line of thirty\n- a second\n\n" +
		"1. first\n\n    $ never   broken, however wide the block of code may be\n\n```yaml\napis: {}\n```\n"
	const want = "\x1b[1mjobs: what a job says\x1b[0m\n\n" +
		"A paragraph that is \x1b[1mso\x1b[0m long\nthat it takes two lines, and\nnames `a command` and\n`weir help limits`.\n\n" +
		"- an item that is too long for\n  a line of thirty\n- a second\n\n" +
		"1. first\n\n    $ never   broken, however wide the block of code may be\n\n    apis: {}\n"
	if got := Render(markdown, Style{Width: 30, Bold: true}); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	plain := strings.NewReplacer("\x1b[1m", "", "\x1b[0m", "").Replace(want)
	if got := Render(markdown, Style{Width: 30}); got != plain {
		t.Errorf("without bold got\n%s\nwant\n%s", got, plain)
	}
}

// TestRenderTables checks that a table has columns if its last column has room, and paragraphs otherwise. Nothing is
// left out.
func TestRenderTables(t *testing.T) {
	const markdown = "| field | default | meaning |\n|---|---|---|\n" +
		"| `rate` | | calls in a period, which may be any duration |\n| `on` | `a \\| b` | see [more](https://example.com) |\n"
	const wide = "field   default  meaning\n" +
		"`rate`           calls in a period, which may be any\n                 duration\n" +
		"`on`    `a | b`  see more\n"
	if got := Render(markdown, Style{Width: 52}); got != wide {
		t.Errorf("got\n%s\nwant\n%s", got, wide)
	}
	const narrow = "`rate`\n    meaning: calls in a\n    period, which may be\n    any duration\n`on`\n    default: `a | b`\n    meaning: see more\n"
	if got := Render(markdown, Style{Width: 24}); got != narrow {
		t.Errorf("got\n%s\nwant\n%s", got, narrow)
	}
	const middle = "a  what it may be, in  **it means so much** that **it takes** two\n" +
		"   many words          lines\n"
	got := Render("| | | |\n|---|---|---|\n| a | what it may be, in many words | **it means so much** that **it takes** two lines |\n", Style{Width: 61})
	if want := strings.ReplaceAll(middle, "**", ""); got != want {
		t.Errorf("a column in the middle: got\n%s\nwant\n%s", got, want)
	}
	got = Render("**a b** c **d e f**\n", Style{Width: 20, Bold: true})
	if want := "\x1b[1ma b\x1b[0m c \x1b[1md e f\x1b[0m\n"; got != want {
		t.Errorf("bold text: got %q, want %q", got, want)
	}
	got = Render("one **two three four five six seven** eight\n", Style{Width: 20, Bold: true})
	if want := "one \x1b[1mtwo three four\x1b[0m\n\x1b[1mfive six seven\x1b[0m eight\n"; got != want {
		t.Errorf("bold text over two lines: got %q, want %q", got, want)
	}
	if got := Render("| | |\n|---|---|\n| a | b |\n", Style{Width: 60}); got != "a  b\n" {
		t.Errorf("a table whose columns have no names: %q", got)
	}
}

// TestTopicsRender checks for every width of a terminal that no line of a topic is wider, except code and single words,
// and that no word is lost.
func TestTopicsRender(t *testing.T) {
	for _, topic := range Topics() {
		before := wordsIn(Render(header.ReplaceAllStringFunc(topic.Text(), unnamed), Style{Width: 1000}))
		for _, width := range []int{30, 60, 80, 100} {
			text := Render(topic.Text(), Style{Width: width})
			for line := range strings.Lines(text) {
				line = strings.TrimRight(line, "\n")
				inner := strings.TrimLeft(line, " -0123456789.")
				if utf8.RuneCountInString(line) > width && !strings.HasPrefix(line, "    ") && strings.Contains(inner, " ") {
					t.Errorf("%s at width %d: a line of %d: %s", topic.Name, width, utf8.RuneCountInString(line), line)
				}
			}
			for word := range before {
				if !strings.Contains(text, word) {
					t.Errorf("%s at width %d: %q is left out", topic.Name, width, word)
				}
			}
		}
	}
}

// header matches the header of a table: rendering rows as paragraphs omits the name of the last column.
var header = regexp.MustCompile(`(?m)^\|.*\n\|-`)

func unnamed(row string) string { return regexp.MustCompile(`[^|\n-]`).ReplaceAllString(row, " ") }

func wordsIn(text string) map[string]int {
	all := map[string]int{}
	for word := range strings.FieldsSeq(text) {
		all[strings.TrimRight(word, ":")]++
	}
	return all
}
