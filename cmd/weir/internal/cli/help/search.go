package help

import (
	"regexp"
	"strings"
)

// Passage is a part of a topic that contains the searched word: a paragraph, an item of a list, a row of a table, or a
// line of code.
type Passage struct {
	Topic   string // the topic's name
	Section string // the heading above the passage, without its marks
	Text    string // the Markdown of the passage, on one line
}

// Search returns the first most passages that contain word, in the order of the topics. all is how many passages
// contain word. Search ignores case. If a heading contains word, the first passage below that heading counts as one
// that contains word.
func Search(word string, most int) (found []Passage, all int) {
	word = strings.ToLower(word)
	for _, t := range Topics() {
		section, inHeading := t.Short, false
		for _, text := range passages(t.text) {
			if heading, ok := strings.CutPrefix(text, "#"); ok {
				section = plain(strings.TrimLeft(heading, "# "))
				inHeading = strings.Contains(strings.ToLower(section), word)
				continue
			}
			if !inHeading && !strings.Contains(strings.ToLower(plain(text)), word) {
				continue
			}
			inHeading = false
			if all++; len(found) < most {
				found = append(found, Passage{t.Name, section, text})
			}
		}
	}
	return found, all
}

// underHeader matches the line below a table's header.
var underHeader = regexp.MustCompile(`^\|[-| :]+\|$`)

// passages splits Markdown into headings and passages.
func passages(markdown string) []string {
	var all []string
	fenced, open := false, false
	for line := range strings.Lines(markdown) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			fenced, open = !fenced, false
		case strings.TrimSpace(line) == "" || underHeader.MatchString(line):
			open = false
		case fenced || strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "#"):
			all, open = append(all, line), false
		case open && goesOn(line):
			all[len(all)-1] += " " + line
		default:
			all, open = append(all, line), true
		}
	}
	return all
}

// plain returns a line of Markdown without its marks, as a terminal shows it.
func plain(line string) string {
	return strings.NewReplacer(string(boldOn), "", string(boldOff), "").Replace(inline(line))
}

// Plain returns the passage as a terminal shows it. Dashes join the cells of a table's row.
func (p Passage) Plain() string {
	text := p.Text
	if strings.HasPrefix(text, "|") {
		var filled []string
		for _, cell := range cells(text) {
			if cell != "" {
				filled = append(filled, cell)
			}
		}
		text = strings.Join(filled, " - ")
	}
	return plain(strings.TrimSpace(text))
}
