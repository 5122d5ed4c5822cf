package httpapi

import (
	"context"
	"encoding/json"
	"errors"

	"weir/bucket/stream"
	"weir/deadletter"
)

// eventList answers GET /events.
type eventList struct {
	Events []json.RawMessage      `json:"events"` // CloudEvents, as they were sent
	Texts  []string               `json:"texts"`  // what each of Events reports, in a sentence
	Types  []deadletter.EventType `json:"types"`  // all that the parameter type takes
}

func eventType() parameter {
	p := parameter{name: "type", summary: "only of this type", kind: text}
	for _, t := range deadletter.EventTypes() {
		p.words = append(p.words, string(t))
	}
	return p
}

// events answers with stored events.
type events struct{ *Options }

func (e *events) list(ctx context.Context, r *request) (any, error) {
	f := deadletter.EventFilter{Type: deadletter.EventType(r.word("type")), API: r.word("api"), Key: r.word("key"), Since: r.time("since")}
	list, limit := eventList{[]json.RawMessage{}, []string{}, deadletter.EventTypes()}, r.number(listLimit)
	_, err := deadletter.NewestEvents(ctx, e.Connection.JetStream, f, 0, func(kept deadletter.KeptEvent) error {
		list.Events, list.Texts = append(list.Events, kept.JSON), append(list.Texts, kept.Text())
		if len(list.Events) == limit {
			return stream.ErrEnough
		}
		return nil
	})
	if errors.Is(err, deadletter.ErrNoEvents) {
		return list, nil
	}
	return list, e.Connection.Explain(err)
}
