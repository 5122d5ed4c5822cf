package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"weir/cmd/weir/internal/terminal"
)

// format is how a command prints its data.
type format string

const (
	forPeople format = ""
	asJSON    format = "json"
)

// add makes the flag --json set the format.
func (f *format) add(flags *pflag.FlagSet, usage string) {
	flags.VarPF(f, "json", "", usage).NoOptDefVal = "true"
}

// Set implements pflag.Value.
func (f *format) Set(text string) error {
	yes, err := strconv.ParseBool(text)
	if err != nil {
		return errors.New("--json takes no value")
	}
	*f = forPeople
	if yes {
		*f = asJSON
	}
	return nil
}

// String implements pflag.Value.
func (f *format) String() string { return strconv.FormatBool(*f == asJSON) }

// Type implements pflag.Value: help prints it as a flag without a value.
func (f *format) Type() string { return "bool" }

// printJSON writes one value as one line.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// table lays columns out under their heads, two blanks apart. A line is cut where the terminal ends.
type table struct {
	rows [][]string
}

func (t *table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = visible(c)
	}
	t.rows = append(t.rows, cells)
}

// print writes the rows and forgets them.
func (t *table) print(w io.Writer) error { return t.printCut(w, terminal.Width(w)) }

// whole is print without cutting: for what is told nowhere else.
func (t *table) whole(w io.Writer) error { return t.printCut(w, 0) }

// printCut cuts lines to most characters; 0 is no bound.
func (t *table) printCut(w io.Writer, most int) error {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		if _, err := fmt.Fprintln(w, terminal.Cut(strings.TrimRight(line.String(), " "), most)); err != nil {
			return fmt.Errorf("write the table: %w", err)
		}
	}
	t.rows = nil
	return nil
}

// visible quotes what a terminal would obey or nobody could see: keys and details are strangers' texts.
func visible(text string) string {
	if utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return text
	}
	return strconv.Quote(text)
}

// brief writes a duration for people, to two digits or so: 0s, 40ms, 3.2s, 5m10s, 3h20m, 12d.
func brief(d time.Duration) string {
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

// withoutZeroSeconds writes 5m for 5m0s, and leaves 5m20s alone.
func withoutZeroSeconds(d time.Duration) string {
	if d%time.Minute != 0 {
		return d.String()
	}
	return strings.TrimSuffix(d.String(), "0s")
}

// count writes a number of things: 1 key, 2 keys.
func count[N int | int64 | uint64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// clockTime writes a point in time for people, in UTC, to the millisecond.
func clockTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
