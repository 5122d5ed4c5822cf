package help

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Style says how Render writes.
type Style struct {
	Width int  // characters of a line, at least 20
	Bold  bool // the terminal knows the sequences of ANSI for bold
}

// Bold text is marked by these while lines are broken: they are no characters of any text, and take no room.
const (
	boldOn  = '\x01'
	boldOff = '\x02'
)

const (
	leastWidth = 20
	tableGap   = 2  // blanks between two columns
	leastLast  = 32 // characters that the last column of a table must have, or rows become paragraphs
	mostMiddle = 22 // characters of the columns in the middle, where the last one has too few otherwise
)

// Render writes Markdown for a terminal: headings bold, paragraphs, lists and tables wrapped, links as their texts, and links to
// topics as the command that shows them.
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

// block writes what begins with the first line, and says how many lines that is.
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

// goesOn reports whether a line belongs to the paragraph before it.
func goesOn(line string) bool {
	return strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "|") &&
		!strings.HasPrefix(line, "```") && !listItem.MatchString(line)
}

// count is how many lines from the first on are so.
func count(lines []string, so func(string) bool) int {
	if n := slices.IndexFunc(lines, func(l string) bool { return !so(l) }); n >= 0 {
		return n
	}
	return len(lines)
}

// fenced writes a block of code without its fences, indented.
func (w *writer) fenced(lines []string) int {
	n := 1 + count(lines[1:], func(l string) bool { return !strings.HasPrefix(l, "```") })
	for _, l := range lines[1:n] {
		w.line(strings.TrimRight("    "+l, " "))
	}
	return min(n+1, len(lines))
}

// paragraph writes wrapped text, the first line behind first and the others behind rest.
func (w *writer) paragraph(first, rest, text string) {
	for i, l := range wrap(inline(text), w.style.Width-len(rest)) {
		if i == 0 {
			w.line(first + l)
			continue
		}
		w.line(rest + l)
	}
}

// table writes columns, the last one as wide as there is room; or, where that would be too narrow, each row as a paragraph. Columns
// between the first and the last are wrapped where that leaves the last one enough.
func (w *writer) table(lines []string) {
	var rows [][]string
	for i, l := range lines {
		if i != 1 { // the line below the header
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

// widths are those of a table's columns where those in the middle have at most middle; nil if the last one would have
// too little, for a line or for its longest word, such as an address.
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

// rows writes each row of a table as its first cell, and below it the others, with their names where they are several.
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

// cells are the texts of a row. A \| in one is a |.
func cells(row string) []string {
	const bar = "\x00"
	row = strings.ReplaceAll(row, `\|`, bar)
	parts := strings.Split(strings.Trim(strings.TrimSpace(row), "|"), "|")
	for i, p := range parts {
		parts[i] = inline(strings.ReplaceAll(strings.TrimSpace(p), bar, "|"))
	}
	return parts
}

// inline turns links and bold text into what a terminal shows.
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

// wrap breaks a text between words, and not within `code` that fits on a line.
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

// boldByLine ends bold text with each line and begins it again on the next: beside it other columns may stand.
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

// words are what a text may be broken between: code that fits on a line is one.
func words(text string, most int) []string {
	var all, code []string
	for word := range strings.FieldsSeq(text) {
		if code = append(code, word); strings.Count(strings.Join(code, " "), "`")%2 == 1 {
			continue // it goes on
		}
		if whole := strings.Join(code, " "); width(whole) <= most {
			code = []string{whole}
		}
		all, code = append(all, code...), nil
	}
	return append(all, code...)
}

// width is how many characters of a line a text takes.
func width(text string) int {
	return utf8.RuneCountInString(text) - strings.Count(text, string(boldOn)) - strings.Count(text, string(boldOff))
}

func pad(text string, to int) string { return text + strings.Repeat(" ", max(0, to-width(text))) }

func (w *writer) line(text string) {
	w.out.WriteString(text)
	w.out.WriteByte('\n')
}
