package webhook

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/grammar"
	"weir/deadletter"
)

// message is the content of a post.
type message struct {
	id   string // the same in every try
	kind string // its content type
	body []byte
}

// render returns the post for groups in a destination's format. In the standard format groups must have exactly one
// element.
func render(to *config.Destination, groups []*group) message {
	first := groups[0]
	m := message{id: messageID(first.id), kind: "application/cloudevents+json", body: first.newest.json}
	if first.events > 1 {
		m.id += "_" + strconv.Itoa(first.events)
	}
	switch {
	case to.Format == config.SlackFormat:
		lines := make([]string, len(groups))
		for i, g := range groups {
			lines[i] = g.text(to.Group, time.Now())
		}
		m.kind, m.body = "application/json", slackText(strings.Join(lines, "\n"))
	case first.events > 1:
		m.body = counted(first)
	}
	return m
}

// counted returns the newest CloudEvent of a group with two extension attributes: groupcount, the number of events, and
// groupsince, the time of the first one.
func counted(g *group) []byte {
	var attributes map[string]json.RawMessage
	if err := json.Unmarshal(g.newest.json, &attributes); err != nil {
		return g.newest.json // cannot happen: readEvent has read it
	}
	attributes["groupcount"] = strconv.AppendInt(nil, int64(g.events), 10)
	attributes["groupsince"] = strconv.AppendQuote(nil, g.at.UTC().Format(time.RFC3339Nano))
	return mustMarshal(attributes)
}

// slackText returns the body of a post with a text. It escapes &, < and >, the only control characters of the format.
func slackText(text string) []byte {
	return mustMarshal(map[string]string{"text": strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)})
}

func mustMarshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("a post that JSON cannot carry: " + err.Error())
	}
	return data
}

// mostText bounds how many characters a field of an event adds to a sentence.
const mostText = 300

// text describes a group in one sentence for people. Text from producers, APIs and operators stands in backticks, so a
// chat shows it literally: it cannot add a line, a link or a mention.
func (g *group) text(collected time.Duration, now time.Time) string {
	e, when := &g.newest, g.when(collected, now)
	switch g.kind {
	case deadletter.ThrottledEvent:
		return things(g.events, "overflow") + g.of() + when + e.because("detail") + g.letter()
	case deadletter.DeadEvent:
		what := things(g.events, "dead letter") + g.of() + when
		if !g.others {
			what += ", " + e.word("reason")
		}
		return what + e.because("detail") + g.letter()
	}
	text := e.sentence()
	switch {
	case g.events > 1:
		text += fmt.Sprintf(" (the newest of %d%s)", g.events, when)
	case when != "":
		text += " (" + strings.TrimSpace(when) + ")"
	}
	return text
}

// sentence describes an event that is not about a letter.
func (e *event) sentence() string {
	who := e.quoted("who")
	switch e.kind {
	case deadletter.HeldEvent:
		return e.name() + " is held" + e.until() + e.because("why")
	case deadletter.ResumedEvent:
		return e.name() + " is called again" + e.because("why")
	case deadletter.BudgetEvent:
		if e.word("percent") == "100" { // the rest may be more than nothing, and less than a call's price
			return fmt.Sprintf("the budget %s of %s has no room for a usual call%s: %s of %s is used", e.word("limit"), e.name(), e.until(), e.word("counted"), e.word("budget"))
		}
		return fmt.Sprintf("%s %% of the budget %s of %s is used: %s of %s%s", e.word("percent"), e.word("limit"), e.name(), e.word("counted"), e.word("budget"), e.until())
	case deadletter.ConfigEvent:
		return fmt.Sprintf("%s put version %s of the configuration in force: %s changes", who, e.word("new_version"), e.word("changes"))
	case deadletter.RedrivenEvent, deadletter.PurgedEvent:
		did := map[deadletter.EventType]string{deadletter.RedrivenEvent: "redrove", deadletter.PurgedEvent: "deleted"}[e.kind]
		gone := ""
		if n := e.word("settled"); n != "" {
			gone = ", and deleted " + n + " whose jobs had gone on"
		}
		return fmt.Sprintf("%s %s %s dead letters%s: %s", who, did, e.word("letters"), gone, e.selection())
	case deadletter.RevealedEvent:
		if seq := e.word("dead_letter_seq"); seq != "" {
			return who + " read the body of letter " + seq
		}
		return who + " exported dead letters: " + e.selection()
	case deadletter.UnhealthyEvent:
		if e.word("stream") != "" { // the replica may be ready
			return e.word("instance") + " found a stream changed" + e.because("why")
		}
		return e.word("instance") + " is not ready" + e.because("why")
	case deadletter.HealthyEvent:
		return e.word("instance") + " is ready again"
	case deadletter.LedgerEvent:
		return "records of calls are missing" + e.because("why")
	case deadletter.ClockEvent:
		return "the clock of the limits of " + e.name() + " has jumped" + e.because("why")
	case deadletter.ExcessEvent:
		limit := e.word("limit") + " of " + e.name()
		if e.word("units") == "0" {
			return "the vendor counts no more of the limit " + limit + " than weir again"
		}
		return "the vendor counts " + e.word("units") + " more of the limit " + limit + " than weir" + e.until()
	case testEvent:
		return "A test of weir by " + who + ": what weir reports to " + e.word("destination") + " arrives here"
	}
	return string(e.kind) + ": " + e.name()
}

// word returns a field of the data as one bounded line, "" if there is no such field.
func (e *event) word(name string) string {
	v, ok := e.data[name]
	if !ok || v == nil {
		return ""
	}
	return line(fmt.Sprint(v))
}

// line makes one line of a text, with at most mostText visible characters and no backticks.
func line(text string) string {
	visible := []rune(strings.Map(func(r rune) rune {
		if r == '`' || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.Join(strings.Fields(text), " ")))
	if len(visible) > mostText {
		return string(visible[:mostText]) + "…"
	}
	return string(visible)
}

// quoted returns a field of the data as word does, in backticks. It returns "" if there is no such field.
func (e *event) quoted(name string) string { return quote(e.word(name)) }

func quote(line string) string {
	if line == "" {
		return ""
	}
	return "`" + line + "`"
}

func (e *event) name() string {
	switch {
	case e.api == "":
		return "no configured api"
	case e.key == "":
		return e.api
	}
	return quote(line(e.api + "/" + e.key))
}

func (e *event) because(field string) string {
	if why := e.quoted(field); why != "" {
		return ": " + why
	}
	return ""
}

func (e *event) until() string {
	if until := e.word("until"); until != "" {
		return " until " + until
	}
	return ""
}

func (e *event) selection() string {
	if s := e.quoted("selection"); s != "" {
		return s
	}
	return "all"
}

// of returns the words that name the subject of a group.
func (g *group) of() string {
	if g.others {
		return " of others"
	}
	return " of " + g.name()
}

// justNow is how long a post may be on its way while its events still count as recent.
const justNow = 15 * time.Second

// when says when the events of a group came. It returns "" for a single recent event.
func (g *group) when(collected time.Duration, now time.Time) string {
	first, last := g.at.UTC(), g.newest.at.UTC()
	recent := now.Sub(first) <= collected+justNow
	switch {
	case g.events < 2 && recent:
		return ""
	case g.events < 2:
		return " at " + first.Format(time.RFC3339)
	case recent && collected == time.Minute:
		return " in the last minute"
	case recent:
		return " in the last " + grammar.FormatDuration(collected)
	}
	return " between " + first.Format(time.RFC3339) + " and " + last.Format(time.RFC3339)
}

func (g *group) letter() string {
	seq := g.newest.word("dead_letter_seq")
	switch {
	case seq == "":
		return ""
	case g.events > 1:
		return " (newest letter " + seq + ")"
	}
	return " (letter " + seq + ")"
}

func things(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
