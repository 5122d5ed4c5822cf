package httpapi

import (
	"context"

	"weir/cmd/weir/internal/ops/joblist"
	"weir/cmd/weir/internal/ops/jobstory"
	"weir/cmd/weir/internal/serve/admin"
	"weir/dispatcher/desk"
	"weir/ingest"
)

// cancelWord is an operator's request to cancel a job.
type cancelWord struct {
	Key string `json:"key,omitempty"` // required if the id exists under several
	Why string `json:"why,omitempty"` // recorded in the letter
}

// cancelled answers a cancelWord.
type cancelled struct {
	Jobs []desk.CancelAnswer `json:"jobs"`
}

// jobs lists jobs, finds one, and cancels them before they are called.
type jobs struct{ *Options }

func (j *jobs) list(ctx context.Context, r *request) (any, error) {
	choice := joblist.Choice{
		API: r.word("api"), Key: r.word("key"), State: r.word("state"), Status: r.word("status"), Since: r.word("since"), Until: r.word("until"),
		ID: r.word("id"), After: r.word("after"), Limit: r.number(listLimit),
	}
	q, err := choice.Read(r.asked)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	return joblist.List(ctx, j.Connection, &q)
}

func (j *jobs) find(ctx context.Context, r *request) (any, error) {
	api, key, err := r.keyOf()
	if err != nil {
		return nil, err
	}
	id, err := r.job()
	if err != nil {
		return nil, err
	}
	o := jobstory.Options{Job: id, API: api, Key: key, Scan: jobstory.UsualScan, APIs: []string{api}, Posted: true}
	if api == "" {
		o.APIs = j.Config().Names()
	}
	t, err := jobstory.Find(ctx, j.Connection, o)
	if err == nil {
		err = t.NotFound(id)
	}
	return t, err
}

func (j *jobs) cancel(_ context.Context, r *request) (any, error) {
	api, err := j.api(r)
	if err != nil {
		return nil, err
	}
	said, err := readIfAny[cancelWord](r)
	if err != nil {
		return nil, err
	}
	if said.Key != "" {
		if err := ingest.CheckKey(said.Key); err != nil {
			return nil, badRequest("key: %v", err)
		}
	}
	job, err := r.job()
	if err != nil {
		return nil, err
	}
	found, err := admin.Cancel(j.Connection, api.Name, admin.Cancellation{Job: job, Key: said.Key, Why: said.Why})
	if err == nil {
		err = admin.Cancelled(api.Name, job, found)
	}
	return cancelled{found}, err
}
