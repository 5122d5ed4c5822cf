// Package terminal knows whether somebody looks at what is written, and how wide his screen is.
package terminal

import (
	"io"
	"os"
	"strings"

	"github.com/rivo/uniseg"
	"golang.org/x/term"
)

// Columns is how many columns of a terminal a text takes: none for an accent that stands over a letter, two for a Chinese character.
func Columns(text string) int { return uniseg.StringWidth(text) }

// Cut shortens a text to at most most columns; 0 is no bound.
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

// Wrap breaks a text between words into lines of at most most columns. A word that is longer stands on a line of its own; 0 is no bound.
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

// Styled reports whether a terminal is sent colours and bold text: not where NO_COLOR is set to anything, nor to a dumb terminal.
func Styled() bool { return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" }

// Width is the width of the terminal that w is, 0 when it is none, or one that does not know.
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

// Watched reports whether w is a terminal, however wide it is.
func Watched(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
