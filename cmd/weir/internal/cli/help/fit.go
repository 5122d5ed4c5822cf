package help

import (
	"regexp"
	"strings"

	"weir/cmd/weir/internal/cli/terminal"
)

// Fit wraps a command's help for a screen of width columns; 0 means no wrapping. If a line of a paragraph is too long,
// Fit fills the whole paragraph anew. If it breaks a line in a list of flags or commands, the rest continues below the
// description. If it breaks an example, the example stays one command for a shell. Fit breaks no word, even if the word
// is longer than a line.
func Fit(text string, width int) string {
	if width < 1 {
		return text
	}
	width = max(width, leastWidth)
	var out, paragraph []string
	examples := false
	fill := func() {
		out = append(out, filled(paragraph, width)...)
		paragraph = nil
	}
	for _, l := range strings.Split(text, "\n") {
		if examples = examples && strings.HasPrefix(l, " ") || l == "Examples:"; examples && strings.HasPrefix(l, " ") {
			fill()
			out = append(out, command(l, width)...)
			continue
		}
		if strings.TrimSpace(l) != "" && l == strings.TrimLeft(l, " ") && (len(paragraph) == 0 || !listItem.MatchString(l)) {
			paragraph = append(paragraph, l)
			continue
		}
		fill()
		if listItem.MatchString(l) {
			paragraph = []string{l}
			continue
		}
		out = append(out, hung(l, description(l), width)...)
	}
	fill()
	return strings.Join(out, "\n")
}

// command wraps an example so that a shell reads it as one command. It breaks the example only between words outside
// quotation marks.
func command(l string, width int) []string {
	if terminal.Columns(l) <= width {
		return []string{l}
	}
	const margin, goesOn = "  ", ` \`
	var lines []string
	line, word := "", ""
	for part := range strings.FieldsSeq(l) {
		if word = strings.TrimPrefix(word+" "+part, " "); strings.Count(word, "'")%2 == 1 || strings.Count(word, `"`)%2 == 1 {
			continue
		}
		switch {
		case line == "":
			line = margin + word
		case terminal.Columns(line+" "+word+goesOn) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line+goesOn), margin+margin+word
		}
		word = ""
	}
	return append(lines, strings.TrimRight(line+" "+word, " "))
}

// filled returns a paragraph unchanged if all its lines fit; otherwise it fills the paragraph anew.
func filled(lines []string, width int) []string {
	for _, l := range lines {
		if terminal.Columns(l) > width {
			all := strings.Join(lines, " ")
			return hung(all, len(listItem.FindString(all)), width)
		}
	}
	return lines
}

// toDescription matches a flag or a name, with the blanks between it and its description.
var toDescription = regexp.MustCompile(`^ +\S.*?\S {2,}|^ +\S {2,}`)

// description returns the column at which a broken line continues. That is the column of the line's description, or,
// without a description, two columns after the beginning of its first word.
func description(l string) int {
	if before := toDescription.FindString(l); before != "" {
		return terminal.Columns(before)
	}
	return len(l) - len(strings.TrimLeft(l, " ")) + 2
}

// hung wraps a line. The first indent columns stay unchanged, and each following line is indented by indent columns. If
// that leaves too little room for a description, the description begins on a line of its own.
func hung(l string, indent, width int) []string {
	if terminal.Columns(l) <= width {
		return []string{l}
	}
	first, rest := strings.TrimRight(l[:min(indent, len(l))], " "), strings.TrimSpace(l[min(indent, len(l)):])
	if strings.TrimSpace(first) == "" || toDescription.FindString(l) == "" && listItem.FindString(l) == "" {
		margin := l[:len(l)-len(strings.TrimLeft(l, " "))]
		return indented(terminal.Wrap(strings.TrimSpace(l), width-indent), margin, strings.Repeat(" ", indent))
	}
	if width-indent < leastLast/2 {
		const margin = "      "
		return append([]string{first}, indented(terminal.Wrap(rest, width-len(margin)), margin, margin)...)
	}
	return indented(terminal.Wrap(rest, width-indent), first+strings.Repeat(" ", indent-len(first)), strings.Repeat(" ", indent))
}

func indented(lines []string, first, rest string) []string {
	for i, l := range lines {
		if i == 0 {
			lines[i] = first + l
		} else {
			lines[i] = rest + l
		}
	}
	return lines
}
