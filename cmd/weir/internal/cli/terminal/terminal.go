// Package terminal tells whether output goes to a terminal, and how wide the terminal is.
package terminal

import (
	"io"
	"os"
	"strings"

	"github.com/rivo/uniseg"
	"golang.org/x/term"
)

// Columns returns how many columns of a terminal a text takes: 0 for a combining accent, 2 for a Chinese character.
func Columns(text string) int { return uniseg.StringWidth(text) }

// Cut shortens a text to at most most columns, with … at the end; 0 means no bound.
func Cut(text string, most int) string {
	if most < 1 || Columns(text) <= most {
		return text
	}
	var kept strings.Builder
	for used, state, rest := 0, -1, text; rest != ""; {
		var letter string
		var width int
		letter, rest, width, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if used += width; used > most-1 {
			break
		}
		kept.WriteString(letter)
	}
	return kept.String() + "…"
}

// Wrap breaks a text between words into lines of at most most columns; 0 means no bound. A longer word gets a line of
// its own.
func Wrap(text string, most int) []string {
	if most < 1 || Columns(text) <= most {
		return []string{text}
	}
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case Columns(line)+1+Columns(word) <= most:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	return append(lines, line)
}

// Styled reports whether colours and bold text may be written: whether NO_COLOR is not set and TERM is not dumb.
func Styled() bool { return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" }

// Width returns the width of the terminal w. It returns 0 if w is not a terminal or its width is unknown.
func Width(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// Watched reports whether w is a terminal.
func Watched(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
