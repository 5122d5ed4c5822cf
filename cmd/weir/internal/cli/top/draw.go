package top

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/cli/terminal"
	"weir/cmd/weir/internal/ops/status"
)

// The smallest size of a drawing, in characters. A smaller terminal shows only the upper left part of it.
const (
	leastWidth  = 40
	leastHeight = 10
)

// Draw turns a frame into at most height lines of at most width characters. f is nil until the first answer.
func (v *View) Draw(f *Frame, width, height int) []string {
	width, height = max(width, leastWidth), max(height, leastHeight)
	if f == nil {
		return v.finish([]line{{text: "weir top: asking the replicas …"}, {text: v.Trouble, style: red}}, width, height)
	}
	if v.helping {
		return v.finish(keyHelp(width), width, height)
	}
	most := 3 // how many lines of the terminal a long line may take
	if height < 2*leastHeight {
		most = 1
	}
	lines := wrapped(v.head(f), width, most)
	for _, p := range f.Problems[:min(len(f.Problems), 2)] {
		lines = append(lines, wrapped(line{"! " + p.What, red}, width, most)...)
	}
	for _, p := range f.Warnings[:min(len(f.Warnings), 1)] {
		lines = append(lines, wrapped(line{"! " + p.What, yellow}, width, most)...)
	}
	lines = append(lines, v.apis(f, height/3, width)...)
	lines = append(lines, wrapped(letters(f), width, most)...)
	chosen := v.choose(f)
	about := v.detail(chosen, width)
	if most == 1 {
		about = nil
	}
	// room is how many lines are left for buckets. The header of their table and the last line of the screen take two.
	room := max(0, height-len(lines)-len(about)-2)
	first := max(0, min(slices.Index(v.shown, v.selected)-room/2, len(chosen)-room))
	lines = append(lines, v.buckets(chosen, first, room, width)...)
	return v.finish(append(lines, about...), width, height)
}

// wrapped breaks a line between words into at most most lines. The last of these lines may be too wide.
func wrapped(l line, width, most int) []line {
	texts := terminal.Wrap(l.text, width)
	if len(texts) > most {
		texts = append(texts[:most-1], strings.Join(texts[most-1:], " "))
	}
	lines := make([]line, len(texts))
	for i, text := range texts {
		lines[i] = line{text, l.style}
	}
	return lines
}

// All turns a frame with all its buckets into lines, for output that is not a terminal.
func (v *View) All(f *Frame) []string {
	lines := append([]line{v.head(f)}, v.apis(f, len(f.APIs)+1, 0)...)
	lines = append(lines, letters(f))
	chosen := v.choose(f)
	v.selected = place{}
	var text []string
	for _, l := range append(lines, v.buckets(chosen, 0, len(chosen), 0)...) {
		text = append(text, strings.TrimRight(l.text, " "))
	}
	return text
}

// style is how a terminal with colours shows a line. It is the text between ESC[ and m.
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

// mostFoot is how many lines at the bottom a question or an outcome may take.
const mostFoot = 3

// finish adds the last lines, and makes all lines fit the terminal.
func (v *View) finish(lines []line, width, height int) []string {
	foot := wrapped(v.foot(width), width, mostFoot)
	height -= len(foot)
	if len(lines) > height {
		lines = lines[:height]
	}
	for len(lines) < height {
		lines = append(lines, line{})
	}
	lines = append(lines, foot...)
	drawn := make([]string, len(lines))
	for i, l := range lines {
		if drawn[i] = terminal.Cut(l.text, width); l.style == plain {
			continue
		}
		switch {
		case v.Color:
			drawn[i] = "\x1b[" + string(l.style) + "m" + drawn[i] + "\x1b[0m"
		case l.style == invert: // marks the selected row even without colours
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

// foot returns the last line: a question, the outcome of the last action, or the keys that do something.
func (v *View) foot(width int) line {
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
	text := "q quit  ? keys"
	for _, more := range []string{"s sort:" + string(v.order()), "/ filter" + filter, "j k select", "p pause", "r resume", "P R the api"} {
		if terminal.Columns(text+"  "+more) > width {
			break
		}
		text += "  " + more
	}
	return line{text, bold}
}

// keyHelp lists the keys and what they do.
func keyHelp(width int) []line {
	lines := []line{{"Keys of weir top", bold}, {}}
	for _, k := range [][2]string{
		{"j k", "or the arrows: select a bucket"},
		{"s S", "sort by the next or the previous column"},
		{"/", "show only keys and apis that hold a text; Esc shows all"},
		{"p r", "pause or resume the selected bucket"},
		{"P R", "pause or resume its api"},
		{"?", "these keys; any key leads back"},
		{"q", "or Ctrl-C: quit"},
	} {
		const margin = 5
		for i, text := range terminal.Wrap(k[1], width-margin) {
			if i > 0 {
				k[0] = ""
			}
			lines = append(lines, line{text: fmt.Sprintf("%-*s%s", margin, k[0], text)})
		}
	}
	return lines
}

// apisGo are the columns that the table of APIs drops, in this order, if it has no room for all.
var apisGo = []string{"SPENT TODAY", "CALLING", "KEYS", "REFUSED/S", "IN/S", "CALLS/S"}

// apis returns the table of APIs, with at most most rows. If the reason why an API is not called does not fit into the
// API's row, the reason follows below the table.
func (v *View) apis(f *Frame, most, width int) []line {
	rows := [][]string{{"API", "JOBS", "KEYS", "CALLING", "IN/S", "CALLS/S", "REFUSED/S", "SPENT TODAY", "CALLED"}}
	styles, below := []style{bold}, []line(nil)
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
		if short, _, more := strings.Cut(state, " "); more && width > 0 && width < wideEnough {
			below = append(below, wrapped(line{visible(a.API) + ": " + visible(state), look}, width, 2)...)
			state = strings.TrimRight(short, ",:")
		}
		rows = append(rows, []string{a.API, strconv.Itoa(a.Jobs), strconv.Itoa(a.Keys), strconv.Itoa(a.InFlight), come, called, refused, spent, state})
		styles = append(styles, look)
	}
	lines := append(table(rows, styles, apisGo, width), below...)
	if more := len(f.APIs) - len(shown); more > 0 {
		lines = append(lines, line{text: fmt.Sprintf("  (and %d more: --api)", more)})
	}
	return lines
}

// calledText says whether weir calls an API. If weir does not, calledText says until when and why.
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
	if len(f.Letters) == 0 { // the letters were not counted by API
		text += " of all APIs"
	}
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

// barWidth is the width of a level's bar in characters.
const barWidth = 12

// bucketsGo are the columns that the table of buckets drops, in this order, if it has no room for all.
var bucketsGo = []string{"CALLING", "IN/S", "LEVEL", "WAITS FOR", "API", "EMPTY IN"}

// detail returns lines with everything about the selected bucket, if the bucket's row has no room for everything.
func (v *View) detail(chosen []*Bucket, width int) []line {
	for _, b := range chosen {
		if (place{b.API, b.Key}) != v.selected {
			continue
		}
		row := v.row(b)
		if terminal.Columns(strings.Join(row, "  ")) <= width && width >= wideEnough {
			return nil
		}
		text := fmt.Sprintf("%s %s: %s, in/s %s, empty in %s, calling %s, waits for %s", visible(b.API), visible(b.Key), row[2], row[4], row[5], row[6], row[7])
		return wrapped(line{text, bold}, width, mostDetail)
	}
	return nil
}

// row returns the cells of a bucket's row.
func (v *View) row(b *Bucket) []string {
	come, empty := "-", "-"
	if b.ComePerS != nil {
		come = perSecond(*b.ComePerS)
	}
	if b.WaitMS >= 0 {
		empty = cli.Brief(time.Duration(b.WaitMS) * time.Millisecond)
	}
	mark := "  "
	if (place{b.API, b.Key}) == v.selected {
		mark = "> "
	}
	return []string{
		mark + terminal.Cut(visible(b.Key), 24), b.API, fmt.Sprintf("%d/%d", b.Depth, b.Capacity), bar(b.level()), come, empty,
		fmt.Sprintf("%d/%d", b.InFlight, b.MaxInFlight), visible(status.WaitingText(b.Waits)),
	}
}

// buckets returns the table with its header and at most room buckets, from the bucket with index first on.
func (v *View) buckets(chosen []*Bucket, first, room, width int) []line {
	rows := [][]string{{"  KEY", "API", "DEPTH", "LEVEL", "IN/S", "EMPTY IN", "CALLING", "WAITS FOR"}}
	styles := []style{bold}
	for _, b := range chosen[first:min(first+max(0, room), len(chosen))] {
		look := plain
		switch level := b.level(); {
		case level >= 0.9:
			look = red
		case level >= 0.5:
			look = yellow
		}
		if (place{b.API, b.Key}) == v.selected {
			look = invert
		}
		rows = append(rows, v.row(b))
		styles = append(styles, look)
	}
	if len(rows) == 1 {
		return append(table(rows, styles, bucketsGo, width), line{"  no job waits", plain})
	}
	return table(rows, styles, bucketsGo, width)
}

// bar draws the level of a bucket in whole and half characters. All bars have the same width.
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

func visible(text string) string { return cli.Visible(text) }

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
