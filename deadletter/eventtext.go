package deadletter

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Text says in a sentence what an event reports. The sentence does not repeat the event's type, api and key. It may
// quote texts of producers, apis and operators.
func (e *KeptEvent) Text() string {
	who := e.word("who")
	switch e.Type {
	case ThrottledEvent:
		return "refused, " + e.word("detail") + e.letter() + e.refusals()
	case DeadEvent:
		return e.word("reason") + ", " + e.word("detail") + e.letter() + e.refusals()
	case HeldEvent:
		return "held" + e.until() + e.because()
	case ResumedEvent:
		return "called again" + e.because()
	case BudgetEvent:
		if e.number("percent") == 100 { // the rest may be more than nothing, and less than a call's price
			return fmt.Sprintf("the budget %s has no room for a usual call%s: %s of %s is used",
				e.word("limit"), e.until(), e.word("counted"), e.word("budget"))
		}
		return fmt.Sprintf("%d %% of the budget %s is used%s: %s of %s",
			e.number("percent"), e.word("limit"), e.until(), e.word("counted"), e.word("budget"))
	case ConfigEvent:
		return fmt.Sprintf("%s put version %d in force, from %s: %s",
			who, e.number("new_version"), e.word("from"), things(e.number("changes"), "change"))
	case RedrivenEvent:
		return who + " redrove " + things(e.number("letters"), "letter") + e.selection() + e.rest()
	case PurgedEvent:
		return who + " deleted " + things(e.number("letters"), "letter") + e.selection()
	case RevealedEvent:
		if e.number("dead_letter_seq") == 0 {
			return who + " exported letters" + e.selection()
		}
		return who + " looked at the job's body" + e.letter()
	case UnhealthyEvent:
		if e.word("stream") != "" { // the replica may be ready
			return "replica " + e.word("instance") + " found a stream changed" + e.because()
		}
		return "replica " + e.word("instance") + " is not ready" + e.because()
	case HealthyEvent:
		return "replica " + e.word("instance") + " is ready again" + e.because()
	case LedgerEvent:
		return "records of calls are missing" + e.because()
	case ClockEvent:
		return e.word("why")
	case ExcessEvent:
		if e.number("units") == 0 {
			return "the vendor counts no more of limit " + e.word("limit") + " than weir any more"
		}
		return fmt.Sprintf("the vendor counts %d more of limit %s than weir%s", e.number("units"), e.word("limit"), e.until())
	}
	return e.fields() // the event is of a later version of weir
}

// word returns the text with this name in the event's data, "" if there is none.
func (e *KeptEvent) word(name string) string {
	text, _ := e.Data[name].(string)
	return text
}

// number returns the number with this name in the event's data, 0 if there is none.
func (e *KeptEvent) number(name string) int {
	switch n := e.Data[name].(type) {
	case float64:
		return int(n)
	case json.Number:
		i, _ := n.Int64()
		return int(i)
	}
	return 0
}

func (e *KeptEvent) because() string {
	if why := e.word("why"); why != "" {
		return ": " + why
	}
	return ""
}

func (e *KeptEvent) until() string {
	if until := e.word("until"); until != "" {
		return " until " + until
	}
	return ""
}

func (e *KeptEvent) letter() string {
	if seq := e.number("dead_letter_seq"); seq != 0 {
		return fmt.Sprintf(" (letter %d)", seq)
	}
	return ""
}

func (e *KeptEvent) refusals() string {
	if n := e.number("refusals"); n > 1 {
		return fmt.Sprintf("; refused %d times so far", n)
	}
	return ""
}

// selection names the letters that an operator chose.
func (e *KeptEvent) selection() string {
	if chosen := e.word("selection"); chosen != "" {
		return " (" + chosen + ")"
	}
	return " (all letters)"
}

// rest says what a redrive did with the other letters, which it did not redrive.
func (e *KeptEvent) rest() string {
	text := ""
	if n := e.number("overflowed"); n > 0 {
		text += fmt.Sprintf("; %d overflowed again", n)
	}
	if n := e.number("refused"); n > 0 {
		text += fmt.Sprintf("; %s refused again", wasOrWere(n))
	}
	if n := e.number("settled"); n > 0 {
		text += fmt.Sprintf("; %s only deleted, because the jobs had gone on", wasOrWere(n))
	}
	if task := e.word("task"); task != "" {
		text += "; redrive " + task
	}
	return text
}

// fields returns the event's data as name=value pairs.
func (e *KeptEvent) fields() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(e.Data)) {
		switch v := e.Data[name].(type) {
		case string:
			parts = append(parts, name+"="+v)
		default:
			if text, err := json.Marshal(v); err == nil {
				parts = append(parts, name+"="+string(text))
			}
		}
	}
	return strings.Join(parts, " ")
}

// things returns a number with its noun: 1 letter, 2 letters.
func things(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

func wasOrWere(n int) string {
	if n == 1 {
		return "1 was"
	}
	return fmt.Sprintf("%d were", n)
}
