package bench

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/cmd/internal/contest"
	"weir/cmd/weir/internal/cli"
)

// Report is the result of one measurement.
type Report struct {
	Bench      string          `json:"bench"`
	Machine    contest.Machine `json:"machine"`
	Durability string          `json:"durability"`
	Rounds     int             `json:"rounds"`
	Jobs       int             `json:"jobs,omitempty"`    // jobs of a round; for latency: samples of a round
	Seconds    int             `json:"seconds,omitempty"` // for pace: length of a round
	Keys       int             `json:"keys"`
	Body       int             `json:"body_bytes"`
	Contenders []Contender     `json:"contenders"`
	Ratios     []Ratio         `json:"ratios"`
	HeldUp     float64         `json:"machine_held_up_ms"` // the longest time that the machine kept a process waiting
	Took       float64         `json:"took_s"`
}

// Contender is one measured program.
type Contender struct {
	Name   string          `json:"name"`
	Unit   string          `json:"unit"`
	Figure contest.Spread  `json:"figure"`
	Each   []float64       `json:"each_round"`
	CPU    *contest.Spread `json:"cpu_us_per_job,omitempty"` // of the process that stores; for fleet: of all but the producer
	Also   []Also          `json:"also,omitempty"`
}

// Also is a further figure of a contender.
type Also struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit"`
	Figure float64 `json:"figure"`
}

// Ratio is the ratio of the figures of two contenders, computed for each round.
type Ratio struct {
	Name   string         `json:"name"`
	Figure contest.Spread `json:"figure"`
}

// ratio computes the ratio of two contenders round by round.
func ratio(over, under Contender) Ratio {
	return Ratio{Name: over.Name + " / " + under.Name, Figure: contest.SpreadOf(contest.Ratios(over.Each, under.Each))}
}

// Print writes the report.
func (r *Report) Print(w io.Writer, as cli.Format) error {
	if as == cli.AsJSON {
		return cli.PrintJSON(w, r)
	}
	each := fmt.Sprintf("%d jobs", r.Jobs)
	if r.Seconds > 0 {
		each = fmt.Sprintf("%d s", r.Seconds)
	}
	_, err := fmt.Fprintf(w, "%s: %d rounds in turns, %s each, %d keys, bodies of %d bytes, durability %s\n%s\n\n", r.Bench, r.Rounds, each, r.Keys,
		r.Body, r.Durability, describe(r.Machine))
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	var t cli.Table
	t.Row("", "MEDIAN", "LEAST", "MOST", "", "CPU A JOB")
	for _, c := range r.Contenders {
		cpu := ""
		if c.CPU != nil {
			cpu = short(c.CPU.Median) + " µs"
		}
		t.Row(c.Name, short(c.Figure.Median), short(c.Figure.Least), short(c.Figure.Most), c.Unit, cpu)
		for _, also := range r.below(c) {
			t.Row("  "+also.Name, short(also.Figure), "", "", also.Unit, "")
		}
	}
	for _, ratio := range r.Ratios {
		t.Row(ratio.Name, short(ratio.Figure.Median), short(ratio.Figure.Least), short(ratio.Figure.Most), "×", "")
	}
	if err := t.PrintWhole(w); err != nil {
		return err
	}
	if err := r.printAcross(w); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "\nThe machine let programs wait for %s at worst. Compare figures of one run only.\n",
		cli.Brief(time.Duration(r.HeldUp*float64(time.Millisecond))))
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// mostBelow is how many further figures of a contender the report prints below it. If a contender has more, the report
// prints them in a table with a column for each contender.
const mostBelow = 3

// isWide reports whether a contender has more than mostBelow further figures.
func (r *Report) isWide() bool {
	return slices.ContainsFunc(r.Contenders, func(c Contender) bool { return len(c.Also) > mostBelow })
}

// below returns the further figures that are printed below a contender.
func (r *Report) below(c Contender) []Also {
	if r.isWide() {
		return nil
	}
	return c.Also
}

// printAcross prints the further figures with a column for each contender. A contender without a figure has a blank.
func (r *Report) printAcross(w io.Writer) error {
	if !r.isWide() {
		return nil
	}
	var rows []Also // each name once, in the order of the contender with the most
	for _, c := range r.Contenders {
		if len(c.Also) > len(rows) {
			rows = c.Also
		}
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	var t cli.Table
	head := []string{"", ""}
	for _, c := range r.Contenders {
		head = append(head, strings.ToUpper(c.Name))
	}
	t.Row(head...)
	for _, row := range rows {
		cells := []string{row.Name, row.Unit}
		for _, c := range r.Contenders {
			cell := ""
			if i := slices.IndexFunc(c.Also, func(x Also) bool { return x.Name == row.Name }); i >= 0 {
				cell = short(c.Also[i].Figure)
			}
			cells = append(cells, cell)
		}
		t.Row(cells...)
	}
	return t.PrintWhole(w)
}

// describe describes the machine in one line.
func describe(m contest.Machine) string {
	text := fmt.Sprintf("%s, %d cores", m.OS, m.Cores)
	if m.CPU != "" {
		text += ", " + m.CPU
	}
	text += fmt.Sprintf(", an fsync takes %s µs", short(m.Sync))
	if m.Load != "" {
		text += ", load " + m.Load + " at the start"
	}
	return text
}

// short formats a figure with about three digits.
func short(f float64) string {
	switch {
	case f >= 100:
		return strconv.FormatFloat(f, 'f', 0, 64)
	case f >= 10:
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return strconv.FormatFloat(f, 'f', 3, 64)
}
