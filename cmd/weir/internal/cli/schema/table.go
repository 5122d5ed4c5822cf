package schema

import (
	"regexp"
	"strings"

	"weir/cmd/weir/internal/cli/help"
)

// row is a row of a table in a topic.
type row struct {
	heading string   // the heading above the table
	section string   // the name in backticks in the heading
	names   []string // the names in backticks in the first cell
	columns []string
	cells   []string
}

func (r row) cell(column string) string {
	for i, c := range r.columns {
		if c == column && i < len(r.cells) {
			return r.cells[i]
		}
	}
	return ""
}

var backticked = regexp.MustCompile("`([^`]+)`")

func inBackticks(text string) (all []string) {
	for _, m := range backticked.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// rows returns the rows of all tables of a topic whose first column is called first. It panics if there are no such
// rows.
func rows(topic, first string) (all []row) {
	t, ok := help.Lookup(topic)
	if !ok {
		panic("schema: there is no topic " + topic)
	}
	heading, section, columns := "", "", []string(nil)
	for line := range strings.Lines(t.Text()) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			heading, section = strings.TrimLeft(line, "# "), strings.Join(inBackticks(line), " ")
		}
		cells := cellsOf(line)
		switch {
		case cells == nil:
			columns = nil
		case columns == nil:
			columns = cells
		case columns[0] == first && !strings.HasPrefix(cells[0], "---"):
			all = append(all, row{heading: heading, section: section, names: inBackticks(cells[0]), columns: columns, cells: cells})
		}
	}
	if len(all) == 0 {
		panic("schema: topic " + topic + " has no table of " + first)
	}
	return all
}

func cellsOf(line string) []string {
	if !strings.HasPrefix(line, "|") {
		return nil
	}
	cells := strings.Split(strings.Trim(line, "|"), "|")
	for i, c := range cells {
		cells[i] = strings.TrimSpace(c)
	}
	return cells
}

var topicLink = regexp.MustCompile(`\[([^]]+)\]\(([^)]+)\)`)

// plain returns a text with links replaced by their texts.
func plain(text string) string { return topicLink.ReplaceAllString(text, "$1") }
