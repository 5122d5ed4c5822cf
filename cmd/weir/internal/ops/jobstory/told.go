package jobstory

import (
	"encoding/json"
	"fmt"

	"weir/cmd/weir/internal/cli"
	"weir/deadletter"
)

// toldText describes an event about a job.
func toldText(e *deadletter.KeptEvent) string {
	text := func(field string) string { s, _ := e.Data[field].(string); return s }
	number := func(field string) int {
		switch n := e.Data[field].(type) {
		case float64:
			return int(n)
		case json.Number:
			i, _ := n.Int64()
			return int(i)
		}
		return 0
	}
	again := ""
	if n := number("refusals"); n > 1 {
		again = "; refused " + cli.Count(n, "time") + " so far"
	}
	letter := ""
	if seq := number("dead_letter_seq"); seq > 0 {
		letter = fmt.Sprintf(" (letter %d)", seq)
	}
	switch e.Type {
	case deadletter.ThrottledEvent:
		return "event throttled: refused, " + text("detail") + letter + again
	case deadletter.DeadEvent:
		return "event dead: " + text("reason") + ", " + text("detail") + letter + again
	case deadletter.RevealedEvent:
		return "event revealed: " + text("who") + " looked at the job's body" + letter
	}
	return "event " + string(e.Type) + ": " + e.Text()
}
