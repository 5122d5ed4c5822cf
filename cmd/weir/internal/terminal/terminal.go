// Package terminal knows whether somebody looks at what is written, and how wide his screen is.
package terminal

import (
	"io"
	"os"
	"unicode/utf8"

	"golang.org/x/term"
)

// Cut shortens a text to at most most characters; 0 is no bound.
func Cut(text string, most int) string {
	if most < 1 || utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

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
