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
	"weir/cmd/weir/internal/control"
	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// redriveWord selects letters to be submitted again, and says how.
type redriveWord struct {
	selection

	Rate           string `json:"rate,omitempty"`            // letters per duration, as in 20/s; absent: 100/s. Their buckets bound the calls in any case
	IncludeUnknown bool   `json:"include_unknown,omitempty"` // also letters whose call may have been processed: the api may bill them twice
	DropDeadline   bool   `json:"drop_deadline,omitempty"`   // forget the jobs' deadlines
}

// redriveOrder begins a redrive.
type redriveOrder struct {
	redriveWord

	Name string `json:"name,omitempty"` // absent: one made of the time
	Why  string `json:"why,omitempty"`  // for those who wonder later
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
	Redrives []control.RedriveTask `json:"redrives"` // the newest first
}

const (
	usualRedriveRate = "100/s"
	mostWhy          = 200      // characters
	redriveBody      = 24 << 20 // of a request: a job's body may be edited
)

// redrives plans, begins, shows, stops and resumes redrives. A replica works them.
type redrives struct {
	*Options

	letters *deadLetters
}

// plannedRedrive is a redrive that has been planned.
type plannedRedrive struct {
	redrive *deadletter.Redrive
	plan    *deadletter.Plan
	rate    bucket.Rate
	words   string // the text of the selection
}

// planned computes what a redrive would do.
func (d *redrives) planned(ctx context.Context, r *request, said *redriveWord, change *deadletter.Edit) (*plannedRedrive, error) {
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
	b, scope, err := d.letters.scope(ctx, chosen)
	if err != nil {
		return nil, err
	}
	o := deadletter.RedriveOptions{
		Conn: d.Connection.Conn, Browser: b, Terms: d.Terms(), Rate: rate, Edit: change,
		Calls: func(ctx context.Context, q deadletter.CallsQuery, take func(deadletter.Trace)) (uint64, error) {
			return ledger.ReadSince(ctx, d.Connection.JetStream, q, take)
		},
		Valid: func() bool { return false }, Told: func(*deadletter.Tally) {}, // a replica works it, not this call
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
		return nil, d.Connection.Explain(err)
	}
	if !p.plan.Found() {
		return nil, cli.NotFound(errNoLetters)
	}
	return p, nil
}

func (d *redrives) plan(ctx context.Context, r *request) (any, error) {
	said, err := read[redriveWord](r)
	if err != nil {
		return nil, err
	}
	p, err := d.planned(ctx, r, &said, nil)
	if err != nil {
		return nil, err
	}
	return control.TellPlan(p.plan, said.Rate), nil
}

func (d *redrives) start(ctx context.Context, r *request) (any, error) {
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
	p, err := d.planned(ctx, r, &said.redriveWord, change)
	if err != nil {
		return nil, err
	}
	if p.plan.Letters+p.plan.Settled == 0 {
		return nil, cli.Refused(fmt.Errorf("none of these letters could be redriven: %v", p.plan.Skipped))
	}
	if !control.RedrivesWorked(d.Connection) {
		return nil, cli.Unreachable(errors.New("no weir works redrives: start `weir serve` with the role dispatch"))
	}
	tasks, err := d.tasks(ctx)
	if err != nil {
		return nil, err
	}
	o := p.redrive.Order(control.RedriveOrder(p.plan, p.rate))
	o.Name, o.By, o.Said = said.Name, r.who.String(), p.words
	if said.Why != "" {
		o.Said += ": " + said.Why
	}
	task, err := tasks.Start(ctx, p.redrive.Scope(), o)
	return d.tell(said.Name, task, err)
}

// change reads an edit; nil if nothing is edited.
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
func (d *redrives) tasks(ctx context.Context) (*deadletter.Tasks, error) {
	kv, err := d.Connection.JetStream.KeyValue(ctx, connect.ControlBucket)
	if err != nil {
		return nil, d.Connection.Explain(err)
	}
	return deadletter.NewTasks(kv), nil
}

// tell describes a redrive, or returns why it cannot.
func (d *redrives) tell(name string, task deadletter.Task, err error) (any, error) {
	if err != nil {
		return nil, d.Connection.Explain(control.ExplainTask(name, err))
	}
	return control.TellTask(&task), nil
}

func (d *redrives) list(ctx context.Context, _ *request) (any, error) {
	tasks, err := d.tasks(ctx)
	if err != nil {
		return nil, err
	}
	all, err := tasks.List(ctx)
	if err != nil {
		return nil, d.Connection.Explain(err)
	}
	list := redriveList{[]control.RedriveTask{}}
	for i := range slices.Backward(all) {
		list.Redrives = append(list.Redrives, control.TellTask(&all[i]))
	}
	return list, nil
}

// one applies do to the redrive that a path names, and describes it afterwards.
func (d *redrives) one(ctx context.Context, r *request, do func(*deadletter.Tasks, string) (deadletter.Task, error)) (any, error) {
	tasks, err := d.tasks(ctx)
	if err != nil {
		return nil, err
	}
	name := r.PathValue("name")
	task, err := do(tasks, name)
	return d.tell(name, task, err)
}

func (d *redrives) show(ctx context.Context, r *request) (any, error) {
	return d.one(ctx, r, func(t *deadletter.Tasks, name string) (deadletter.Task, error) { return t.Get(ctx, name) })
}

func (d *redrives) stop(ctx context.Context, r *request) (any, error) {
	return d.one(ctx, r, func(t *deadletter.Tasks, name string) (deadletter.Task, error) {
		return t.Stop(ctx, name, r.who.String())
	})
}

func (d *redrives) resume(ctx context.Context, r *request) (any, error) {
	return d.one(ctx, r, func(t *deadletter.Tasks, name string) (deadletter.Task, error) { return t.Resume(ctx, name) })
}
