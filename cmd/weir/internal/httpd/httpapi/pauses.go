package httpapi

import (
	"context"
	"io"
	"strings"

	"weir/cmd/weir/internal/serve/admin"
)

// pauseWord is an operator's request to pause.
type pauseWord struct {
	Why string `json:"why,omitempty"` // shown with the command, for other operators
	For string `json:"for,omitempty"` // as in 90s, 2h or 1d, after which it ends by itself; absent: it does not
}

// pauses stops and resumes the calls of apis and keys.
type pauses struct{ *Options }

// command returns an operator's command for the api in the path, or for the key if the route has one.
func (p *pauses) command(ctx context.Context, r *request) (*admin.OperatorCommand, error) {
	api, err := p.api(r)
	if err != nil {
		return nil, err
	}
	key := ""
	if strings.Contains(r.Pattern, "/key") { // otherwise the command is for the whole api
		if key, err = r.key(); err != nil {
			return nil, err
		}
	}
	return admin.NewOperatorCommand(ctx, p.Connection, r.who.String(), api.Name, key)
}

func (p *pauses) pause(ctx context.Context, r *request) (any, error) {
	said, err := readIfAny[pauseWord](r)
	if err != nil {
		return nil, err
	}
	lasts, err := admin.ReadLasting(said.For)
	if err != nil {
		return nil, badRequest("for: %v", err)
	}
	o, err := p.command(ctx, r)
	if err != nil {
		return nil, err
	}
	return o, o.Pause(ctx, p.Connection, io.Discard, admin.Pausing{Why: said.Why, For: lasts})
}

func (p *pauses) resume(ctx context.Context, r *request) (any, error) {
	o, err := p.command(ctx, r)
	if err != nil {
		return nil, err
	}
	return o, o.Resume(ctx, p.Connection, io.Discard)
}
