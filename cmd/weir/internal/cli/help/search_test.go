package help

import (
	"slices"
	"strings"
	"testing"
)

// TestSearchFindsEveryPassage compares Search with the lines of the topics: a word of a line must be in a passage of
// the line's topic.
func TestSearchFindsEveryPassage(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"burst", "overflow", "WEIR_DATA_DIR", "redrive", "unknown"} {
		found, all := Search(word, 10_000)
		if all != len(found) || all == 0 {
			t.Fatalf("%s: %d of %d passages", word, len(found), all)
		}
		in := map[string]string{}
		for _, p := range found {
			in[p.Topic] += p.Text + "\n"
		}
		for _, topic := range Topics() {
			for line := range strings.Lines(topic.Text()) {
				line = strings.TrimSpace(line)
				if strings.HasPrefix(line, "#") || !strings.Contains(strings.ToLower(line), strings.ToLower(word)) {
					continue
				}
				if !strings.Contains(in[topic.Name], line) {
					t.Errorf("%s: no passage of %s has the line %q", word, topic.Name, line)
				}
			}
		}
	}
}

// TestSearch checks the bound, the count, headings, and that case does not matter.
func TestSearch(t *testing.T) {
	t.Parallel()
	few, all := Search("limit", 3)
	if len(few) != 3 || all <= 3 {
		t.Errorf("%d passages of %d, want 3 of more", len(few), all)
	}
	if _, upper := Search("LIMIT", 3); upper != all {
		t.Errorf("%d passages for LIMIT, %d for limit", upper, all)
	}
	found, _ := Search("Rights and secrets", 10)
	if len(found) == 0 || found[0].Section != "Rights and secrets" || !strings.HasPrefix(found[0].Text, "- ") {
		t.Errorf("a heading finds %+v", found)
	}
	if all := passages("one\ntwo\n- three\n  four\n"); !slices.Equal(all, []string{"one two", "- three   four"}) {
		t.Errorf("paragraphs are split into %q", all)
	}
	if found, all := Search("no text has this", 10); len(found) != 0 || all != 0 {
		t.Errorf("found %+v", found)
	}
}

// TestPassageIsPlain checks that a passage is shown without the marks of Markdown.
func TestPassageIsPlain(t *testing.T) {
	t.Parallel()
	got := Passage{Text: `| ` + "`rate`" + ` | | **needed**, see [limits](limits.md) |`}.Plain()
	if want := "`rate` - needed, see `weir help limits`"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
