package api

import (
	"context"

	"weir/cmd/weir/internal/console"
	"weir/cmd/weir/internal/control"
	"weir/cmd/weir/internal/history"
)

// pastOf answers GET /history.
type pastOf struct {
	API     string         `json:"api"`
	Key     string         `json:"key,omitempty"`
	Samples []history.Part `json:"samples"` // oldest first
}

func historyRoutes() []route {
	return []route{{
		method: "GET", path: "/history", name: "getHistory", role: console.Viewer, answer: pastOf{}, atOnce: 4 * readsAtOnce,
		summary: "What flowed in and out of an api, or of one of its deepest buckets, in the last quarter of an hour, by five seconds: for drawings",
		query:   []parameter{{name: "api", summary: "of this api", kind: text}, {name: "key", summary: "of this key", kind: text}},
		serve:   (*API).past,
	}}
}

func (a *API) past(_ context.Context, r *request) (any, error) {
	api, err := a.named(r.word("api"))
	if err != nil {
		return nil, err
	}
	told := pastOf{API: api.Name, Key: r.word("key")}
	var key *string
	if r.given.Has("key") {
		key = &told.Key
	}
	told.Samples, err = control.History(a.Connection, api.Name, key)
	return told, err
}
