package help

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Style is how Render formats text.
type Style struct {
	Width int  // the most characters of a line, at least 20
	Bold  bool // the terminal supports the ANSI sequences for bold
}

// These characters mark bold text while lines are broken. No topic contains them, and they have no width.
const (
	boldOn  = '\x01'
	boldOff = '\x02'
)

const (
	leastWidth = 20
	tableGap   = 2  // blanks between two columns
	leastLast  = 32 // the least width of a table's last column; if there is less room, rows become paragraphs
	mostMiddle = 22 // the most width of a middle column if the last column has too little room otherwise
)

// Render formats Markdown for a terminal. Headings are bold, paragraphs, lists and tables are wrapped, and links become
// their texts. A link to a topic becomes the command that shows the topic.
func Render(markdown string, s Style) string {
	s.Width = max(s.Width, leastWidth)
	w := writer{style: s}
	lines := strings.Split(strings.TrimRight(markdown, "\n"), "\n")
	for len(lines) > 0 {
		n := w.block(lines)
		lines = lines[n:]
	}
	text := strings.TrimRight(w.out.String(), "\n") + "\n"
	on, off := "", ""
	if s.Bold {
		on, off = "\x1b[1m", "\x1b[0m"
	}
	return strings.NewReplacer(string(boldOn), on, string(boldOff), off).Replace(text)
}

type writer struct {
	style Style
	out   strings.Builder
}

var (
	listItem = regexp.MustCompile(`^(- |\d+\. )`)
	link     = regexp.MustCompile(`\[([^]]+)\]\(([^)]+)\)`)
	bold     = regexp.MustCompile(`\*\*([^*]+)\*\*`)
	topicRef = regexp.MustCompile(`^([a-z-]+)\.md$`)
)

// block writes the block that begins with the first line. It returns the block's number of lines.
func (w *writer) block(lines []string) int {
	first := lines[0]
	switch {
	case strings.TrimSpace(first) == "":
		w.line("")
		return 1
	case strings.HasPrefix(first, "#"):
		for _, l := range wrap(inline(strings.TrimLeft(first, "# ")), w.style.Width) {
			w.line(string(boldOn) + l + string(boldOff))
		}
		return 1
	case strings.HasPrefix(first, "```"):
		return w.fenced(lines)
	case strings.HasPrefix(first, "    "):
		w.line(first)
		return 1
	case strings.HasPrefix(first, "|"):
		n := count(lines, func(l string) bool { return strings.HasPrefix(l, "|") })
		w.table(lines[:n])
		return n
	}
	indent := len(listItem.FindString(first))
	n := 1 + count(lines[1:], func(l string) bool { return goesOn(l) })
	w.paragraph(first[:indent], strings.Repeat(" ", indent), strings.Join(append([]string{first[indent:]}, lines[1:n]...), " "))
	return n
}

// goesOn reports whether a line continues the paragraph of the line before.
func goesOn(line string) bool {
	return strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "|") &&
		!strings.HasPrefix(line, "```") && !listItem.MatchString(line)
}

// count returns how many of the first lines satisfy so, up to the first line that does not.
func count(lines []string, so func(string) bool) int {
	if n := slices.IndexFunc(lines, func(l string) bool { return !so(l) }); n >= 0 {
		return n
	}
	return len(lines)
}

// fenced writes a fenced block of code, indented and without its fences. It returns the block's number of lines.
func (w *writer) fenced(lines []string) int {
	n := 1 + count(lines[1:], func(l string) bool { return !strings.HasPrefix(l, "```") })
	for _, l := range lines[1:n] {
		w.line(strings.TrimRight("    "+l, " "))
	}
	return min(n+1, len(lines))
}

// paragraph writes wrapped text. first precedes the first line, and rest precedes each further line.
func (w *writer) paragraph(first, rest, text string) {
	for i, l := range wrap(inline(text), w.style.Width-len(rest)) {
		if i == 0 {
			w.line(first + l)
			continue
		}
		w.line(rest + l)
	}
}

// table writes a table. The last column gets all the remaining width. If that is too little, the cells of the middle
// columns are wrapped. If it is then still too little, each row becomes a paragraph.
func (w *writer) table(lines []string) {
	var rows [][]string
	for i, l := range lines {
		if i != 1 { // skip the line below the header
			rows = append(rows, cells(l))
		}
	}
	widths := w.widths(rows, w.style.Width)
	if widths == nil {
		widths = w.widths(rows, mostMiddle)
	}
	if widths == nil {
		w.rows(rows)
		return
	}
	for i, row := range rows {
		if strings.Join(row, "") == "" {
			continue // the columns have no names
		}
		wrapped, height := make([][]string, len(row)), 0
		for c, cell := range row {
			wrapped[c] = wrap(cell, widths[c])
			height = max(height, len(wrapped[c]))
		}
		for n := range height {
			line := ""
			for c := range row {
				cell := ""
				if n < len(wrapped[c]) {
					cell = wrapped[c][n]
				}
				line += pad(cell, widths[c]+tableGap)
			}
			line = strings.TrimRight(line, " ")
			if i == 0 {
				line = string(boldOn) + line + string(boldOff)
			}
			w.line(line)
		}
	}
}

// widths returns the widths of a table's columns. A middle column gets at most middle characters. widths returns nil if
// the last column would be narrower than leastLast or than its longest word, for example an address.
func (w *writer) widths(rows [][]string, middle int) []int {
	last := len(rows[0]) - 1
	widths := make([]int, last+1)
	widths[last] = w.style.Width
	for c := range last {
		for _, row := range rows {
			if c == 0 || width(row[c]) <= middle {
				widths[c] = max(widths[c], width(row[c]))
				continue
			}
			for _, l := range wrap(row[c], middle) {
				widths[c] = max(widths[c], width(l))
			}
		}
		widths[last] -= widths[c] + tableGap
	}
	least := leastLast
	for _, row := range rows {
		for word := range strings.FieldsSeq(row[last]) {
			least = max(least, width(word))
		}
	}
	if widths[last] < least {
		return nil
	}
	return widths
}

// rows writes each row of a table as a paragraph: the first cell, and the other cells below it. If there is more than
// one other cell, the name of its column precedes each.
func (w *writer) rows(rows [][]string) {
	const indent = "    "
	for _, row := range rows[1:] {
		for _, l := range wrap(row[0], w.style.Width) {
			w.line(l)
		}
		for c, cell := range row[1:] {
			if cell == "" {
				continue
			}
			if name := rows[0][c+1]; len(row) > 2 && name != "" {
				cell = name + ": " + cell
			}
			for _, l := range wrap(cell, w.style.Width-len(indent)) {
				w.line(indent + l)
			}
		}
	}
}

// cells returns the formatted cells of a table's row. In a cell, \| stands for |.
func cells(row string) []string {
	const bar = "\x00"
	row = strings.ReplaceAll(row, `\|`, bar)
	parts := strings.Split(strings.Trim(strings.TrimSpace(row), "|"), "|")
	for i, p := range parts {
		parts[i] = inline(strings.ReplaceAll(strings.TrimSpace(p), bar, "|"))
	}
	return parts
}

// inline replaces the Markdown of links and bold text by what a terminal shows.
func inline(text string) string {
	text = link.ReplaceAllStringFunc(text, func(l string) string {
		m := link.FindStringSubmatch(l)
		topic := topicRef.FindStringSubmatch(m[2])
		switch {
		case topic == nil:
			return m[1]
		case topic[1] == m[1]:
			return "`weir help " + topic[1] + "`"
		}
		return m[1] + " (`weir help " + topic[1] + "`)"
	})
	return bold.ReplaceAllString(text, string(boldOn)+"$1"+string(boldOff))
}

// wrap breaks a text between words into lines of at most most characters. It breaks `code` only if the code does not
// fit on a line.
func wrap(text string, most int) []string {
	lines, line := []string{}, ""
	for _, word := range words(text, most) {
		switch {
		case line == "":
			line = word
		case width(line)+1+width(word) <= most:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	return boldByLine(append(lines, line))
}

// boldByLine ends bold text at the end of each line and begins it again on the next line, because on the terminal other
// columns may be beside the text.
func boldByLine(lines []string) []string {
	open := ""
	for i, l := range lines {
		l = open + l
		if open = ""; strings.LastIndexByte(l, boldOn) > strings.LastIndexByte(l, boldOff) {
			l, open = l+string(boldOff), string(boldOn)
		}
		lines[i] = l
	}
	return lines
}

// words splits a text into the parts between which a line may be broken. `code` that fits on a line is one part.
func words(text string, most int) []string {
	var all, code []string
	for word := range strings.FieldsSeq(text) {
		if code = append(code, word); strings.Count(strings.Join(code, " "), "`")%2 == 1 {
			continue // the code continues
		}
		if whole := strings.Join(code, " "); width(whole) <= most {
			code = []string{whole}
		}
		all, code = append(all, code...), nil
	}
	return append(all, code...)
}

// width returns how many columns of a line a text takes.
func width(text string) int {
	return utf8.RuneCountInString(text) - strings.Count(text, string(boldOn)) - strings.Count(text, string(boldOff))
}

func pad(text string, to int) string { return text + strings.Repeat(" ", max(0, to-width(text))) }

func (w *writer) line(text string) {
	w.out.WriteString(text)
	w.out.WriteByte('\n')
}
