package webhook

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"weir/deadletter"
)

// mostGroups bounds the groups of a window. Further kinds of events are counted together by their type.
const mostGroups = 50

// event is one event as its stream keeps it.
type event struct {
	id       string
	kind     deadletter.EventType
	api, key string // "" for none
	at       time.Time
	data     map[string]any // numbers are json.Number
	json     []byte
}

// readEvent reads a CloudEvent of weir. It reports false for a message that is none.
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

// reason returns why a letter was written, "" for an event of no letter.
func (e *event) reason() string {
	reason, _ := e.data["reason"].(string)
	return reason
}

// subject is what an event is about, besides its type. Events about different subjects are told apart.
type subject struct{ api, key, reason, instance, limit, who string }

func (e *event) subject() subject {
	return subject{e.api, e.key, e.reason(), e.word("instance"), e.word("limit"), e.word("who")}
}

// opposite returns the type that takes an event of a type back, "" if there is none.
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
	event  // of which id, kind, api, key and at are those of the first one
	about  subject
	newest event
	events int
	others bool // of several subjects: the window has no room to tell them apart
}

// window is the events that are posted together.
type window struct {
	groups []*group
	events int
	last   uint64 // the newest event that was read, wanted or not
}

func (w *window) empty() bool { return w.events == 0 }

// add counts an event in the group of its type and subject. An event that follows its opposite begins a new group, so
// that the last group of a subject says how it stands.
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
