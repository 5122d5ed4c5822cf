package webhook

import (
	"bytes"
	"encoding/json"
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

// group is the events of one type, API, key and reason within a window.
type group struct {
	event  // of which id, kind, api, key and at are those of the first one
	newest event
	events int
	others bool // of several APIs, keys and reasons: the window has no room to tell them apart
}

// window is the events that are posted together.
type window struct {
	groups []*group
	events int
	last   uint64 // the newest event that was read, wanted or not
}

func (w *window) empty() bool { return w.events == 0 }

func (w *window) add(e event) {
	w.events++
	for _, g := range w.groups {
		if g.kind == e.kind && (g.others || g.api == e.api && g.key == e.key && g.reason() == e.reason()) {
			g.newest, g.events = e, g.events+1
			return
		}
	}
	others := len(w.groups) >= mostGroups
	w.groups = append(w.groups, &group{event: e, newest: e, events: 1, others: others})
}
