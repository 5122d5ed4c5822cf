package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"weir/cmd/weir/internal/cli/terminal"
)

// Format is the output format of a command.
type Format string

// The formats.
const (
	ForPeople Format = ""     // tables, and sentences
	AsJSON    Format = "json" // one JSON object on each line
)

// Empty prints an empty list, [], as JSON. In the other format it returns why, with the exit code for "not found".
func (f Format) Empty(w io.Writer, why error) error {
	if f != AsJSON {
		return NotFound(why)
	}
	return PrintJSON(w, []struct{}{})
}

// Add defines the flag --json, which sets the format.
func (f *Format) Add(flags *pflag.FlagSet, usage string) {
	flags.VarPF(f, "json", "", usage).NoOptDefVal = "true"
}

// Set implements pflag.Value.
func (f *Format) Set(text string) error {
	yes, err := strconv.ParseBool(text)
	if err != nil {
		return errors.New("--json takes no value")
	}
	*f = ForPeople
	if yes {
		*f = AsJSON
	}
	return nil
}

// String implements pflag.Value.
func (f *Format) String() string { return strconv.FormatBool(*f == AsJSON) }

// Type implements pflag.Value. The type "bool" makes help print the flag without a value.
func (f *Format) Type() string { return "bool" }

// PrintJSON writes v as one line of JSON. If w is a terminal, it escapes control characters.
func PrintJSON(w io.Writer, v any) error {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	data := line.Bytes()
	if terminal.Watched(w) {
		data = inert(data)
	}
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// WriteBytes writes a body from an API or a producer unchanged, except that on a terminal it escapes control
// characters.
func WriteBytes(w io.Writer, data []byte) error {
	if terminal.Watched(w) {
		data = inert(data)
	}
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("write the body: %w", err)
	}
	return nil
}

// inert escapes control and invisible characters as JSON does, except line feeds and tabs.
func inert(data []byte) []byte {
	shown := make([]byte, 0, len(data))
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		switch {
		case r == utf8.RuneError && size == 1:
			shown = fmt.Appendf(shown, "\\x%02x", data[0])
		case r == '\n', r == '\t', unicode.IsPrint(r):
			shown = append(shown, data[:size]...)
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				shown = fmt.Appendf(shown, "\\u%04x", unit)
			}
		}
		data = data[size:]
	}
	return shown
}

// Table prints columns under their headers, with two blanks between columns. Lines are cut at the width of the
// terminal.
type Table struct {
	rows [][]string
}

// Size returns the number of rows that are not yet printed.
func (t *Table) Size() int { return len(t.rows) }

// rowsAtOnce is how many rows of a long list are aligned and printed together.
const rowsAtOnce = 1000

// Full reports whether the table has enough rows for one Print of a long list.
func (t *Table) Full() bool { return t.Size() >= rowsAtOnce }

// Row adds a row.
func (t *Table) Row(cells ...string) {
	for i, c := range cells {
		cells[i] = Visible(c)
	}
	t.rows = append(t.rows, cells)
}

// Print writes the rows and forgets them.
func (t *Table) Print(w io.Writer) error { return t.printCut(w, terminal.Width(w)) }

// PrintWhole is Print without cutting lines, for data that only this table shows.
func (t *Table) PrintWhole(w io.Writer) error { return t.printCut(w, 0) }

// printCut writes the rows. It cuts lines that are wider than most, in columns of the terminal. If most is 0, it cuts
// none.
func (t *Table) printCut(w io.Writer, most int) error {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], terminal.Columns(cell))
		}
	}
	for _, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-terminal.Columns(cell)+2))
			}
		}
		if _, err := fmt.Fprintln(w, terminal.Cut(strings.TrimRight(line.String(), " "), most)); err != nil {
			return fmt.Errorf("write the table: %w", err)
		}
	}
	t.rows = nil
	return nil
}

// Visible returns text, quoted if it contains control or invisible characters. Use it for keys, details and other texts
// from outside.
func Visible(text string) string {
	if utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return text
	}
	return strconv.Quote(text)
}

// Brief formats a duration with about two digits: 0s, 40ms, 3.2s, 5m10s, 3h20m, 12d.
func Brief(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
	case d < time.Millisecond:
		return "<1ms"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return withoutZeroSeconds(d.Round(time.Second))
	case d < 48*time.Hour:
		return withoutZeroSeconds(d.Round(time.Minute))
	}
	return strconv.Itoa(int(d.Hours()/24)) + "d"
}

// withoutZeroSeconds formats a duration. It leaves out the seconds if they are zero: 5m, 5m20s.
func withoutZeroSeconds(d time.Duration) string {
	if d%time.Minute != 0 {
		return d.String()
	}
	return strings.TrimSuffix(d.String(), "0s")
}

// Count formats a number of things: 1 key, 2 keys.
func Count[N int | int64 | uint64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// ClockTime formats a time in UTC, to the millisecond.
func ClockTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// Verb returns the form of a verb for n things.
func Verb(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}
