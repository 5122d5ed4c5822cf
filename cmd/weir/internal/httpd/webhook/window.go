package webhook

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"weir/deadletter"
)

// mostGroups bounds the groups of a window. Beyond it a window only counts events by type.
const mostGroups = 50

// event is one event, as its stream stores it.
type event struct {
	id       string
	kind     deadletter.EventType
	api, key string // "" for none
	at       time.Time
	data     map[string]any // numbers are json.Number
	json     []byte
}

// readEvent reads a CloudEvent of weir. It returns false for any other message.
func readEvent(text []byte) (event, bool) {
	var e struct {
		ID      string         `json:"id"`
		Type    string         `json:"type"`
		Source  string         `json:"source"`
		Subject string         `json:"subject"`
		Time    time.Time      `json:"time"`
		Data    map[string]any `json:"data"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&e) != nil || e.ID == "" {
		return event{}, false
	}
	kind := deadletter.EventType(strings.TrimSuffix(strings.TrimPrefix(e.Type, "weir."), ".v1"))
	return event{e.ID, kind, strings.TrimPrefix(e.Source, "/weir/"), e.Subject, e.Time, e.Data, text}, true
}

// reason returns why a letter was written, "" if the event is not about a letter.
func (e *event) reason() string {
	reason, _ := e.data["reason"].(string)
	return reason
}

// subject is what an event is about, besides its type. Events with different subjects are different groups.
type subject struct{ api, key, reason, instance, stream, limit, who string }

func (e *event) subject() subject {
	return subject{e.api, e.key, e.reason(), e.word("instance"), e.word("stream"), e.word("limit"), e.word("who")}
}

// opposite returns the type of event that revokes an event of this type, "" if there is none.
func opposite(kind deadletter.EventType) deadletter.EventType {
	switch kind {
	case deadletter.HeldEvent:
		return deadletter.ResumedEvent
	case deadletter.ResumedEvent:
		return deadletter.HeldEvent
	case deadletter.UnhealthyEvent:
		return deadletter.HealthyEvent
	case deadletter.HealthyEvent:
		return deadletter.UnhealthyEvent
	}
	return ""
}

// group is the events of one type and subject within a window.
type group struct {
	event  // id, kind, api, key and at are those of the first event
	about  subject
	newest event
	events int
	others bool // of several subjects, because the window has no room for more groups
}

// window is a set of events that are posted together.
type window struct {
	groups []*group
	events int
	last   uint64 // the newest event read, wanted or not
}

func (w *window) empty() bool { return w.events == 0 }

// add counts an event in the group of its type and subject. An event after its opposite begins a new group, so that the
// last group of a subject tells its present state.
func (w *window) add(e event) {
	w.events++
	about := e.subject()
	var rest *group
	for _, g := range slices.Backward(w.groups) {
		if g.others && g.kind == e.kind {
			rest = g
		} else if !g.others && g.about == about && g.kind == e.kind {
			g.newest, g.events = e, g.events+1
			return
		} else if !g.others && g.about == about && g.kind == opposite(e.kind) {
			break
		}
	}
	if rest != nil {
		rest.newest, rest.events = e, rest.events+1
		return
	}
	w.groups = append(w.groups, &group{event: e, about: about, newest: e, events: 1, others: len(w.groups) >= mostGroups})
}
