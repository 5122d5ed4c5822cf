package httpapi

import (
	"cmp"
	"context"
	"encoding/base64"
	"slices"
	"unicode/utf8"

	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/deadletter"
	"weir/ingest"
)

// redriveWord selects letters to be submitted again, and says how.
type redriveWord struct {
	selection

	Rate           string `json:"rate,omitempty"`            // letters per duration, as in 20/s; absent: 100/s. Their buckets bound the calls in any case
	IncludeUnknown bool   `json:"include_unknown,omitempty"` // also letters whose call may have been processed: the api may bill them twice
	DropDeadline   bool   `json:"drop_deadline,omitempty"`   // forget the jobs' deadlines
	Priority       string `json:"priority,omitempty"`        // of the jobs: high, normal or low; absent: low
}

// redriveOrder begins a redrive.
type redriveOrder struct {
	redriveWord

	Name string `json:"name,omitempty"` // absent: one made of the time
	Why  string `json:"why,omitempty"`  // shown with the command, for other operators
	Edit *edit  `json:"edit,omitempty"` // of the one letter that is named
}

// edit changes a letter's job.
type edit struct {
	Body       *string             `json:"body,omitempty"`
	BodyBase64 *string             `json:"body_base64,omitempty"`
	Set        map[string][]string `json:"set,omitempty"`   // headers, with all their values
	Unset      []string            `json:"unset,omitempty"` // headers
}

// redriveList answers GET /redrives.
type redriveList struct {
	Redrives []deadview.RedriveTask `json:"redrives"` // the newest first
}

const (
	mostWhy     = 200      // bytes
	redriveBody = 24 << 20 // bytes of a request, which may contain a job's edited body
)

// redrives plans, begins, shows, stops and resumes redrives. A replica carries them out.
type redrives struct{ *Options }

// planned reads a request and returns what its redrive would do.
func (d *redrives) planned(ctx context.Context, r *request, said *redriveWord, asked deadview.Redrive) (*deadview.PlannedRedrive, error) {
	asked.IncludeUnknown, asked.DropDeadline, asked.By = said.IncludeUnknown, said.DropDeadline, r.who.String()
	if asked.Priority = said.Priority; said.Priority != "" {
		if _, err := ingest.ParsePriority(said.Priority); err != nil {
			return nil, badRequest("priority: %v", err)
		}
	}
	var err error
	if asked.Rate, err = grammar.ParseRate(cmp.Or(said.Rate, deadview.UsualRate)); err != nil {
		return nil, badRequest("rate: %v", err)
	}
	if asked.Letters, err = said.choose(r); err != nil {
		return nil, err
	}
	store, err := deadview.Open(ctx, d.Connection)
	if err != nil {
		return nil, err
	}
	return store.PlanRedrive(ctx, asked, d.Terms())
}

func (d *redrives) plan(ctx context.Context, r *request) (any, error) {
	said, err := read[redriveWord](r)
	if err != nil {
		return nil, err
	}
	p, err := d.planned(ctx, r, &said, deadview.Redrive{})
	if err != nil {
		return nil, err
	}
	return p.Shown(), nil
}

func (d *redrives) start(ctx context.Context, r *request) (any, error) {
	said, err := read[redriveOrder](r)
	if err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(said.Why) > mostWhy {
		return nil, badRequest("why is over %d characters", mostWhy)
	}
	change, err := said.change(r)
	if err != nil {
		return nil, err
	}
	p, err := d.planned(ctx, r, &said.redriveWord, deadview.Redrive{Name: said.Name, Why: said.Why, Edit: change})
	if err != nil {
		return nil, err
	}
	task, err := p.Start(ctx)
	return describe(&task, err)
}

// change reads an edit. It returns nil if the request has none.
func (o *redriveOrder) change(r *request) (*deadletter.Edit, error) {
	if o.Edit == nil {
		return nil, nil //nolint:nilnil // nothing is edited
	}
	e := &deadletter.Edit{Set: o.Edit.Set, Unset: o.Edit.Unset, EditedBy: r.who.String()}
	switch {
	case o.Edit.Body != nil && o.Edit.BodyBase64 != nil:
		return nil, badRequest("edit: body and body_base64 exclude each other")
	case o.Edit.Body != nil:
		e.SetBody, e.Body = true, []byte(*o.Edit.Body)
	case o.Edit.BodyBase64 != nil:
		body, err := base64.StdEncoding.DecodeString(*o.Edit.BodyBase64)
		if err != nil {
			return nil, badRequest("edit: body_base64: %v", err)
		}
		e.SetBody, e.Body = true, body
	}
	if err := e.Check(); err != nil {
		return nil, badRequest("edit: %v", err)
	}
	return e, nil
}

// describe returns a redrive in the form of the API.
func describe(task *deadletter.Task, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return deadview.TellTask(task), nil
}

func (d *redrives) list(ctx context.Context, _ *request) (any, error) {
	tasks, err := deadview.OpenTasks(ctx, d.Connection)
	if err != nil {
		return nil, err
	}
	all, err := tasks.List(ctx)
	if err != nil {
		return nil, err
	}
	list := redriveList{[]deadview.RedriveTask{}}
	for i := range slices.Backward(all) {
		list.Redrives = append(list.Redrives, deadview.TellTask(&all[i]))
	}
	return list, nil
}

// one calls do with the name in the path, and answers with the redrive that do returns.
func (d *redrives) one(ctx context.Context, r *request, do func(tasks *deadview.Tasks, name string) (deadletter.Task, error)) (any, error) {
	tasks, err := deadview.OpenTasks(ctx, d.Connection)
	if err != nil {
		return nil, err
	}
	task, err := do(tasks, r.PathValue("name"))
	return describe(&task, err)
}

func (d *redrives) show(ctx context.Context, r *request) (any, error) {
	return d.one(ctx, r, func(t *deadview.Tasks, name string) (deadletter.Task, error) { return t.Get(ctx, name) })
}

func (d *redrives) stop(ctx context.Context, r *request) (any, error) {
	return d.one(ctx, r, func(t *deadview.Tasks, name string) (deadletter.Task, error) {
		return t.Stop(ctx, name, r.who.String())
	})
}

func (d *redrives) resume(ctx context.Context, r *request) (any, error) {
	return d.one(ctx, r, func(t *deadview.Tasks, name string) (deadletter.Task, error) { return t.Resume(ctx, name) })
}
