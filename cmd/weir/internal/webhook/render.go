package webhook

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/deadletter"
)

// message is what is posted.
type message struct {
	id   string // the same in every try
	kind string // its content type
	body []byte
}

// render returns the post of groups in a destination's format. The standard format takes one group.
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
			lines[i] = g.text(to.Group)
		}
		m.kind, m.body = "application/json", slackText(strings.Join(lines, "\n"))
	case first.events > 1:
		m.body = counted(first)
	}
	return m
}

// counted returns the newest CloudEvent of a group with two extension attributes: how many the group has, and when the
// first one was.
func counted(g *group) []byte {
	var attributes map[string]json.RawMessage
	if err := json.Unmarshal(g.newest.json, &attributes); err != nil {
		return g.newest.json // it was read before
	}
	attributes["groupcount"] = strconv.AppendInt(nil, int64(g.events), 10)
	attributes["groupsince"] = strconv.AppendQuote(nil, g.at.UTC().Format(time.RFC3339Nano))
	return mustMarshal(attributes)
}

// slackText returns the body for a text. &, < and > are its only control characters.
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

// mostText bounds what an event adds to a sentence.
const mostText = 300

// text says in one sentence what happened, for people.
func (g *group) text(collected time.Duration) string {
	e := &g.newest
	switch g.kind {
	case deadletter.ThrottledEvent:
		return things(g.events, "overflow") + g.about() + g.when(collected) + e.because("detail") + g.letter()
	case deadletter.DeadEvent:
		what := things(g.events, "dead letter") + g.about() + g.when(collected)
		if !g.others {
			what += ", " + e.reason()
		}
		return what + e.because("detail") + g.letter()
	}
	text := e.sentence()
	if g.events > 1 {
		text += fmt.Sprintf(" (the newest of %d%s)", g.events, g.when(collected))
	}
	return text
}

// sentence says what happened in an event that is of no letter.
func (e *event) sentence() string {
	who := e.word("who")
	switch e.kind {
	case deadletter.HeldEvent:
		return e.name() + " is held" + e.until() + e.because("why")
	case deadletter.ResumedEvent:
		return e.name() + " is called again" + e.because("why")
	case deadletter.BudgetEvent:
		return fmt.Sprintf("%s %% of the budget %s of %s is used: %s of %s%s", e.word("percent"), e.word("limit"), e.name(), e.word("counted"), e.word("budget"), e.until())
	case deadletter.ConfigEvent:
		return fmt.Sprintf("%s put version %s of the configuration in force: %s changes", who, e.word("new_version"), e.word("changes"))
	case deadletter.RedrivenEvent, deadletter.PurgedEvent:
		did := map[deadletter.EventType]string{deadletter.RedrivenEvent: "redrove", deadletter.PurgedEvent: "deleted"}[e.kind]
		return fmt.Sprintf("%s %s %s dead letters: %s", who, did, e.word("letters"), e.selection())
	case deadletter.RevealedEvent:
		if seq := e.word("dead_letter_seq"); seq != "" {
			return who + " read the body of letter " + seq
		}
		return who + " exported dead letters: " + e.selection()
	case deadletter.UnhealthyEvent:
		return e.word("instance") + " is not ready" + e.because("why")
	case deadletter.HealthyEvent:
		return e.word("instance") + " is ready again"
	case deadletter.LedgerEvent:
		return "records of calls are missing" + e.because("why")
	case deadletter.ClockEvent:
		return "the clock of the limits of " + e.name() + " has jumped" + e.because("why")
	case testEvent:
		return "A test of weir by " + who + ": what weir reports to " + e.word("destination") + " arrives here"
	}
	return string(e.kind) + ": " + e.name()
}

// word returns a field of the data as text, bounded, "" if there is none.
func (e *event) word(name string) string {
	v, ok := e.data[name]
	if !ok || v == nil {
		return ""
	}
	text := []rune(strings.Join(strings.Fields(fmt.Sprint(v)), " "))
	if len(text) > mostText {
		return string(text[:mostText]) + "…"
	}
	return string(text)
}

func (e *event) name() string {
	switch {
	case e.api == "":
		return "no configured api"
	case e.key == "":
		return e.api
	}
	return e.api + "/" + e.key
}

func (e *event) because(field string) string {
	if why := e.word(field); why != "" {
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
	if s := e.word("selection"); s != "" {
		return s
	}
	return "all"
}

// about names what a group is about.
func (g *group) about() string {
	if g.others {
		return " of others"
	}
	return " of " + g.name()
}

// when says in which time the events of a group came, "" for a single one.
func (g *group) when(collected time.Duration) string {
	first, last := g.at.UTC(), g.newest.at.UTC()
	switch {
	case g.events < 2:
		return ""
	case last.Sub(first) <= collected && collected == time.Minute:
		return " in the last minute"
	case last.Sub(first) <= collected:
		return " in the last " + config.FormatDuration(collected)
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
