package top

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/terminal"
)

// The least that is drawn for: a smaller terminal shows the upper left of it.
const (
	leastWidth  = 40
	leastHeight = 10
)

// Draw makes at most height lines of at most width characters of a frame, which is nil before there is one.
func (v *View) Draw(f *Frame, width, height int) []string {
	width, height = max(width, leastWidth), max(height, leastHeight)
	if f == nil {
		return v.finish([]line{{text: "weir top: asking the replicas …"}, {text: v.Trouble, style: red}}, width, height)
	}
	lines := []line{v.head(f)}
	for _, p := range f.Problems[:min(len(f.Problems), 2)] {
		lines = append(lines, line{"! " + p.What, red})
	}
	lines = append(lines, v.apis(f, height/3)...)
	lines = append(lines, letters(f))
	room := height - len(lines) - 2 // the heads, and the last line
	chosen := v.choose(f)
	first := max(0, min(slices.Index(v.shown, v.selected)-room/2, len(chosen)-room))
	lines = append(lines, v.buckets(chosen, first, room)...)
	return v.finish(lines, width, height)
}

// All makes lines of a frame with all of its buckets, for what is no terminal.
func (v *View) All(f *Frame) []string {
	lines := append([]line{v.head(f)}, v.apis(f, len(f.APIs)+1)...)
	lines = append(lines, letters(f))
	chosen := v.choose(f)
	v.selected = place{}
	var text []string
	for _, l := range append(lines, v.buckets(chosen, 0, len(chosen))...) {
		text = append(text, strings.TrimRight(l.text, " "))
	}
	return text
}

// style is how a line looks on a terminal with colours: what follows ESC[ and precedes m.
type style string

const (
	plain  style = ""
	bold   style = "1"
	red    style = "31"
	yellow style = "33"
	invert style = "7"
)

type line struct {
	text  string
	style style
}

// finish puts the last line under the others, and fits all to the terminal.
func (v *View) finish(lines []line, width, height int) []string {
	if len(lines) > height-1 {
		lines = lines[:height-1]
	}
	for len(lines) < height-1 {
		lines = append(lines, line{})
	}
	lines = append(lines, v.foot())
	drawn := make([]string, len(lines))
	for i, l := range lines {
		if drawn[i] = terminal.Cut(l.text, width); l.style == plain {
			continue
		}
		switch {
		case v.Color:
			drawn[i] = "\x1b[" + string(l.style) + "m" + drawn[i] + "\x1b[0m"
		case l.style == invert: // the selected one is known without colours
			drawn[i] = "\x1b[7m" + drawn[i] + "\x1b[0m"
		}
	}
	return drawn
}

func (v *View) head(f *Frame) line {
	how, look := "healthy", bold
	if !f.Healthy {
		how, look = "NOT healthy: "+cli.Count(len(f.Problems), "problem"), red
	}
	text := fmt.Sprintf("weir at %s is %s  %s  %s", visible(f.Server), how, cli.Count(len(f.Replicas), "replica"), f.At.Local().Format(time.TimeOnly))
	if v.Trouble != "" {
		text, look = text+"  (old: "+visible(v.Trouble)+")", red
	}
	return line{text, look}
}

// foot is what can be done, what was done, or what is asked.
func (v *View) foot() line {
	switch {
	case v.asked != nil:
		return line{fmt.Sprintf("%s %s? y: yes, any other key: no", v.asked.Deed, v.asked.about()), yellow}
	case v.typing:
		return line{"only keys and apis with: " + v.Filter + "_   Enter: done, Esc: all", yellow}
	case v.Said != "":
		return line{v.Said, yellow}
	}
	filter := ""
	if v.Filter != "" {
		filter = "=" + v.Filter
	}
	return line{fmt.Sprintf("q quit  s sort:%s  / filter%s  j k select  p pause  r resume  P R the api", v.order(), filter), bold}
}

// apis is a table of at most so many lines.
func (v *View) apis(f *Frame, most int) []line {
	rows := [][]string{{"API", "JOBS", "KEYS", "CALLING", "IN/S", "CALLS/S", "REFUSED/S", "SPENT TODAY", "CALLED"}}
	styles := []style{bold}
	shown := f.APIs[:min(len(f.APIs), max(1, most-1))]
	for i, a := range shown {
		come, called, refused := "-", "-", "-"
		if i < len(f.Rates) {
			come, called, refused = perSecond(f.Rates[i].Come), perSecond(f.Rates[i].Called), perSecond(f.Rates[i].Throttle)
		}
		spent := a.Spent
		if spent == "" {
			spent = "-"
		}
		state, look := calledText(a)
		rows = append(rows, []string{a.API, strconv.Itoa(a.Jobs), strconv.Itoa(a.Keys), strconv.Itoa(a.InFlight), come, called, refused, spent, state})
		styles = append(styles, look)
	}
	lines := table(rows, styles)
	if more := len(f.APIs) - len(shown); more > 0 {
		lines[len(lines)-1].text += fmt.Sprintf("   (and %d more: --api)", more)
	}
	return lines
}

// calledText says whether an api is called, and until when not.
func calledText(a *status.API) (string, style) {
	until := func(at time.Time) string {
		if at.IsZero() {
			return ""
		}
		return " until " + cli.ClockTime(at)
	}
	text, look := "yes", plain
	switch {
	case a.Pause != nil:
		text, look = "paused"+until(a.Pause.Until), yellow
	case len(a.Holds) > 0 && a.Holds[0].Key == "":
		text, look = "held"+until(a.Holds[0].Until)+": "+a.Holds[0].Why, yellow
	}
	for _, keys := range []struct {
		n    int
		what string
	}{{a.PausedKeys, "paused"}, {a.HeldKeys, "held"}} {
		if keys.n > 0 {
			text += ", " + cli.Count(keys.n, "key") + " " + keys.what
		}
	}
	return text, look
}

func letters(f *Frame) line {
	if f.LettersAll == 0 {
		return line{"no dead letters", plain}
	}
	text := cli.Count(f.LettersAll, "dead letter")
	most := slices.Clone(f.Letters)
	slices.SortStableFunc(most, func(a, b status.Letters) int { return int(min(max(int64(b.Letters)-int64(a.Letters), -1), 1)) })
	for i, l := range most {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		text += fmt.Sprintf("%s%d %s of %s", sep, l.Letters, l.Reason, orDash(visible(l.API)))
	}
	return line{text, yellow}
}

// barWidth is how many characters a level is drawn with.
const barWidth = 12

// buckets is a table of so many buckets from the first on, with its head.
func (v *View) buckets(chosen []*Bucket, first, room int) []line {
	rows := [][]string{{"  KEY", "API", "DEPTH", "LEVEL", "IN/S", "EMPTY IN", "CALLING", "WAITS FOR"}}
	styles := []style{bold}
	for _, b := range chosen[first:min(first+max(0, room), len(chosen))] {
		mark, look := "  ", plain
		switch level := b.level(); {
		case level >= 0.9:
			look = red
		case level >= 0.5:
			look = yellow
		}
		if (place{b.API, b.Key}) == v.selected {
			mark, look = "> ", invert
		}
		come, empty := "-", "-"
		if b.ComePerS != nil {
			come = perSecond(*b.ComePerS)
		}
		if b.WaitMS >= 0 {
			empty = cli.Brief(time.Duration(b.WaitMS) * time.Millisecond)
		}
		rows = append(rows, []string{
			mark + terminal.Cut(visible(b.Key), 24), b.API, fmt.Sprintf("%d/%d", b.Depth, b.Capacity), bar(b.level()), come, empty,
			fmt.Sprintf("%d/%d", b.InFlight, b.MaxInFlight), status.WaitingText(b.Waits),
		})
		styles = append(styles, look)
	}
	if len(rows) == 1 {
		return append(table(rows, styles), line{"  no job waits", plain})
	}
	return table(rows, styles)
}

// bar draws how full a bucket is: whole and half characters, all of a width.
func bar(level float64) string {
	halves := min(2*barWidth, max(0, int(level*2*barWidth+0.5)))
	if level > 0 {
		halves = max(1, halves)
	}
	full := halves / 2
	return strings.Repeat("█", full) + strings.Repeat("▌", halves%2) + strings.Repeat("·", barWidth-full-halves%2)
}

func perSecond(rate float64) string {
	if rate >= 10 || rate == 0 {
		return strconv.FormatFloat(rate, 'f', 0, 64)
	}
	return strconv.FormatFloat(rate, 'f', 1, 64)
}

// table lays columns out, two blanks apart.
func table(rows [][]string, styles []style) []line {
	var widths []int
	for _, row := range rows {
		for i := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			row[i] = visible(row[i])
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	lines := make([]line, len(rows))
	for n, row := range rows {
		var text strings.Builder
		for i, cell := range row {
			text.WriteString(cell)
			if i < len(row)-1 {
				text.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		lines[n] = line{text.String(), styles[n]}
	}
	return lines
}

func visible(text string) string { return cli.Visible(text) }

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
