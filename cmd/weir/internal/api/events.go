package api

import (
	"context"
	"encoding/json"
	"errors"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/console"
	"weir/deadletter"
)

// eventList answers GET /events.
type eventList struct {
	Events []json.RawMessage `json:"events"` // CloudEvents, as they were sent
}

func eventRoutes() []route {
	return []route{{
		method: "GET", path: "/events", name: "listEvents", role: console.Viewer, answer: eventList{}, atOnce: readsAtOnce,
		summary: "Events that are kept, the newest first: CloudEvents as they were sent (weir events tail)",
		query:   []parameter{eventType(), {name: "api", summary: "only about this api; _ for those about none", kind: text}, {name: "key", summary: "only about this key", kind: text}, since, listLimit},
		serve:   (*API).listEvents,
	}}
}

func eventType() parameter {
	p := parameter{name: "type", summary: "only of this type", kind: text}
	for _, t := range deadletter.EventTypes() {
		p.words = append(p.words, string(t))
	}
	return p
}

func (a *API) listEvents(ctx context.Context, r *request) (any, error) {
	f := deadletter.EventFilter{Type: deadletter.EventType(r.word("type")), API: r.word("api"), Key: r.word("key"), Since: r.time("since")}
	list, limit := eventList{[]json.RawMessage{}}, r.number(listLimit)
	_, err := deadletter.NewestEvents(ctx, a.Connection.JetStream, f, 0, func(e deadletter.KeptEvent) error {
		list.Events = append(list.Events, e.JSON)
		if len(list.Events) == limit {
			return stream.ErrEnough
		}
		return nil
	})
	if errors.Is(err, deadletter.ErrNoEvents) {
		return list, nil
	}
	return list, a.Connection.Explain(err)
}
