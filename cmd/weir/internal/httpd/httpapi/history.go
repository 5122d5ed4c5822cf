package httpapi

import (
	"context"

	"weir/cmd/weir/internal/ops/flowsamples"
	"weir/cmd/weir/internal/serve/admin"
)

// pastOf answers GET /history.
type pastOf struct {
	API     string             `json:"api"`
	Key     string             `json:"key,omitempty"`
	Samples []flowsamples.Part `json:"samples"` // oldest first
}

// past answers with the flow of the recent past.
type past struct{ *Options }

func (p *past) tell(_ context.Context, r *request) (any, error) {
	api, err := p.named(r.word("api"))
	if err != nil {
		return nil, err
	}
	told := pastOf{API: api.Name, Key: r.word("key")}
	var key *string
	if r.given.Has("key") {
		key = &told.Key
	}
	told.Samples, err = admin.History(p.Connection, api.Name, key)
	return told, err
}
