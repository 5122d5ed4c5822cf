package api

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"weir/bucket"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/connect"
	"weir/cmd/weir/internal/console"
	"weir/cmd/weir/internal/control"
	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// redriveWord is which letters are to be handed in again, and how.
type redriveWord struct {
	selection

	Rate           string `json:"rate,omitempty"`            // letters per duration, as in 20/s; absent: 100/s. Their buckets bound the calls in any case
	IncludeUnknown bool   `json:"include_unknown,omitempty"` // also letters whose call may have been processed: the api may bill them twice
	DropDeadline   bool   `json:"drop_deadline,omitempty"`   // forget the jobs' deadlines
}

// redriveOrder begins one.
type redriveOrder struct {
	redriveWord

	Name string `json:"name,omitempty"` // absent: one that says when it was begun
	Why  string `json:"why,omitempty"`  // for those who wonder later
	Edit *edit  `json:"edit,omitempty"` // of the one letter that is named
}

// edit is what is changed of a letter's job.
type edit struct {
	Body       *string             `json:"body,omitempty"`
	BodyBase64 *string             `json:"body_base64,omitempty"`
	Set        map[string][]string `json:"set,omitempty"`   // headers, with all their values
	Unset      []string            `json:"unset,omitempty"` // headers
}

// redriveList answers GET /redrives.
type redriveList struct {
	Redrives []control.RedriveTask `json:"redrives"` // the newest first
}

const (
	usualRedriveRate = "100/s"
	mostWhy          = 200      // characters
	redriveBody      = 24 << 20 // of a request: a job's body may be edited
)

func redriveRoutes() []route {
	stop := route{
		method: "POST", path: "/redrives/{name}/stop", name: "stopRedrive", role: console.Operator, answer: control.RedriveTask{},
		summary: "Have a redrive rest until it is resumed (weir dead stop). What it has handed in stays so", serve: (*API).stopRedrive,
	}
	remove := stop
	remove.method, remove.path, remove.name, remove.summary = "DELETE", "/redrives/{name}", "cancelRedrive", "The same as stop"
	return []route{
		{
			method: "POST", path: "/dead/redrive/plan", name: "planRedrive", role: console.Operator, body: redriveWord{}, answer: control.RedrivePlan{}, time: longRead, atOnce: 2,
			summary: "What a redrive would do: how many, what they cost, how long it takes, how many would overflow again (weir dead redrive --dry-run)", serve: (*API).planRedrive,
		},
		{
			method: "POST", path: "/redrives", name: "startRedrive", role: console.Operator, body: redriveOrder{}, maxBody: redriveBody, answer: control.RedriveTask{}, time: longRead, atOnce: 2,
			summary: "Hand dead letters in again (weir dead redrive --detach): a replica works it, whatever becomes of who asked", serve: (*API).startRedrive,
		},
		{
			method: "GET", path: "/redrives", name: "listRedrives", role: console.Viewer, answer: redriveList{},
			summary: "The redrives, the newest first (weir dead tasks)", serve: (*API).listRedrives,
		},
		{
			method: "GET", path: "/redrives/{name}", name: "showRedrive", role: console.Viewer, answer: control.RedriveTask{},
			summary: "One redrive: how far it is, and what came of its letters (weir dead task)", serve: (*API).showRedrive,
		},
		stop, remove,
		{
			method: "POST", path: "/redrives/{name}/resume", name: "resumeRedrive", role: console.Operator, answer: control.RedriveTask{},
			summary: "Have a redrive go on that was stopped or has failed (weir dead resume)", serve: (*API).resumeRedrive,
		},
	}
}

// plannedRedrive is a redrive that has been planned.
type plannedRedrive struct {
	redrive *deadletter.Redrive
	plan    *deadletter.Plan
	rate    bucket.Rate
	words   string // of the selection
}

// plan looks at what a redrive would do.
func (a *API) plan(ctx context.Context, r *request, said *redriveWord, change *deadletter.Edit) (*plannedRedrive, error) {
	if said.Rate == "" {
		said.Rate = usualRedriveRate
	}
	rate, err := config.ParseRate(said.Rate)
	if err != nil {
		return nil, badRequest("rate: %v", err)
	}
	chosen, words, err := said.choose(r)
	if err != nil {
		return nil, err
	}
	b, err := a.browse(ctx)
	if err != nil {
		return nil, err
	}
	if b == nil {
		return nil, cli.NotFound(errNoLetters)
	}
	scope, err := b.Scope(ctx, chosen)
	if err != nil {
		return nil, a.explainScope(err)
	}
	o := deadletter.RedriveOptions{
		Conn: a.Connection.Conn, Browser: b, Terms: a.Terms(), Rate: rate, Edit: change,
		Calls: func(ctx context.Context, q deadletter.CallsQuery, take func(deadletter.Trace)) (uint64, error) {
			return ledger.ReadSince(ctx, a.Connection.JetStream, q, take)
		},
		Valid: func() bool { return false }, Told: func(*deadletter.Tally) {}, // a replica works it, not this
	}
	if said.IncludeUnknown {
		o.Unknown = deadletter.IncludeUnknowns
	}
	if said.Reason == string(deadletter.Cancelled) || len(chosen.Seqs) > 0 {
		o.Cancelled = deadletter.IncludeCancelleds
	}
	if said.DropDeadline {
		o.Deadline = deadletter.DropDeadline
	}
	p := &plannedRedrive{redrive: deadletter.NewRedrive(scope, o), rate: rate, words: words}
	if p.plan, err = p.redrive.Plan(ctx); err != nil {
		return nil, a.Connection.Explain(err)
	}
	if !p.plan.Found() {
		return nil, cli.NotFound(errNoLetters)
	}
	return p, nil
}

func (a *API) planRedrive(ctx context.Context, r *request) (any, error) {
	said, err := read[redriveWord](r)
	if err != nil {
		return nil, err
	}
	p, err := a.plan(ctx, r, &said, nil)
	if err != nil {
		return nil, err
	}
	return control.TellPlan(p.plan, said.Rate), nil
}

func (a *API) startRedrive(ctx context.Context, r *request) (any, error) {
	said, err := read[redriveOrder](r)
	if err != nil {
		return nil, err
	}
	if len(said.Why) > mostWhy {
		return nil, badRequest("why is over %d characters", mostWhy)
	}
	change, err := said.change(r)
	if err != nil {
		return nil, err
	}
	p, err := a.plan(ctx, r, &said.redriveWord, change)
	if err != nil {
		return nil, err
	}
	if p.plan.Letters+p.plan.Settled == 0 {
		return nil, cli.Refused(fmt.Errorf("none of these letters could be redriven: %v", p.plan.Skipped))
	}
	if !control.RedrivesWorked(a.Connection) {
		return nil, cli.Unreachable(errors.New("no weir works redrives: start `weir serve` of this version with the role dispatch"))
	}
	tasks, err := a.tasks(ctx)
	if err != nil {
		return nil, err
	}
	o := p.redrive.Order(control.RedriveOrder(p.plan, p.rate))
	o.Name, o.By, o.Said = said.Name, r.who.String(), p.words
	if said.Why != "" {
		o.Said += ": " + said.Why
	}
	task, err := tasks.Start(ctx, p.redrive.Scope(), o)
	return a.task(said.Name, task, err)
}

// change reads an edit; nil where nothing is edited.
func (o *redriveOrder) change(r *request) (*deadletter.Edit, error) {
	if o.Edit == nil {
		return nil, nil //nolint:nilnil // nothing is edited
	}
	if len(o.Seqs) != 1 {
		return nil, badRequest("edit: name the one letter by seqs that is edited")
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

// tasks finds the redrives.
func (a *API) tasks(ctx context.Context) (*deadletter.Tasks, error) {
	kv, err := a.Connection.JetStream.KeyValue(ctx, connect.ControlBucket)
	if err != nil {
		return nil, a.Connection.Explain(err)
	}
	return deadletter.NewTasks(kv), nil
}

// task tells of one, or says why not.
func (a *API) task(name string, task deadletter.Task, err error) (any, error) {
	if err != nil {
		return nil, a.Connection.Explain(control.ExplainTask(name, err))
	}
	return control.TellTask(&task), nil
}

func (a *API) listRedrives(ctx context.Context, _ *request) (any, error) {
	tasks, err := a.tasks(ctx)
	if err != nil {
		return nil, err
	}
	all, err := tasks.List(ctx)
	if err != nil {
		return nil, a.Connection.Explain(err)
	}
	list := redriveList{[]control.RedriveTask{}}
	for i := range slices.Backward(all) {
		list.Redrives = append(list.Redrives, control.TellTask(&all[i]))
	}
	return list, nil
}

func (a *API) showRedrive(ctx context.Context, r *request) (any, error) {
	tasks, err := a.tasks(ctx)
	if err != nil {
		return nil, err
	}
	task, err := tasks.Get(ctx, r.PathValue("name"))
	return a.task(r.PathValue("name"), task, err)
}

func (a *API) stopRedrive(ctx context.Context, r *request) (any, error) {
	tasks, err := a.tasks(ctx)
	if err != nil {
		return nil, err
	}
	task, err := tasks.Stop(ctx, r.PathValue("name"), r.who.String())
	return a.task(r.PathValue("name"), task, err)
}

func (a *API) resumeRedrive(ctx context.Context, r *request) (any, error) {
	tasks, err := a.tasks(ctx)
	if err != nil {
		return nil, err
	}
	task, err := tasks.Resume(ctx, r.PathValue("name"))
	return a.task(r.PathValue("name"), task, err)
}
